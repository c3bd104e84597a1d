"""Sections of pages that are generated: what stands between two comments that name them."""

from collections.abc import Iterable
from pathlib import Path


def section(name: str, page: Path) -> str:
    """What a page has between the markers of a section. Raises ValueError where it has no such section."""
    _, begin, rest = page.read_text().partition(f"<!-- {name} -->\n")
    inside, end, _ = rest.partition(f"<!-- /{name} -->")
    if not (begin and end):
        raise ValueError(f"{page} has no section between <!-- {name} --> and <!-- /{name} -->")
    return inside


def write_section(name: str, lines: Iterable[str], page: Path) -> None:
    """Replace what a page has between the markers of a section."""
    begin = f"<!-- {name} -->\n"
    generated = "".join(f"{line}\n" for line in lines)
    page.write_text(page.read_text().replace(begin + section(name, page), begin + generated))
