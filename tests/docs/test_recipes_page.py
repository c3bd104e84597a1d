"""What docs/recipes.md shows is what comes out."""

import re
import subprocess
import sys

import doc_pages

_SHOWN = re.compile(r"```python\n(?P<code>.*?)```\n\n```text\n(?P<output>.*?)```", re.DOTALL)


def test_the_order_of_eight_numbers_is_as_shown_repeats_without_shuffling_and_not_with_it() -> None:
    shown = _SHOWN.search((doc_pages.ROOT / "docs" / "recipes.md").read_text())
    assert shown is not None
    ran = subprocess.run([sys.executable, "-c", shown["code"]], stdout=subprocess.PIPE, text=True, check=True)
    assert ran.stdout == shown["output"]
    in_order, repeated, drawn, drawn_again = (
        said(ran.stdout, flag, epoch) for flag in (False, True) for epoch in (0, 1)
    )
    assert in_order == repeated
    assert drawn != drawn_again
    assert all(sorted(seen) == list("01234567") for seen in (in_order, drawn, drawn_again))


def said(output: str, shuffle: bool, epoch: int) -> list[str]:
    """What both ranks see in the epoch, in their order."""
    lines = [line for line in output.splitlines() if line.startswith(f"shuffle {shuffle!s:5} epoch {epoch}")]
    return re.findall(r"\d", "".join(line.partition(":")[2] for line in lines))
