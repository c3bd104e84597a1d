"""The overview and the story of a job in a terminal: within its width, and harmless whatever the job has written."""

from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from cli_examples import CONTROLS, NO_TIME, attempt, job, printed
from rekindle_service.cli.commands.job_tables import sections
from rekindle_service.cli.commands.show import job_lines, rank_list, story_lines

EVIL = "\x1b]52;c;AAAA\x07\x1b[2J\x9b31m[red]x\u202e\tab 恶意 " * 5


def frame(**changes: Any) -> Any:
    lines = [{"line": 9, "text": "def step():"}, {"line": 10, "text": "\tloss = x + y"}]
    fields = {"file": "train.py", "line": 10, "function": "step", "is_user": True, "source": lines}
    return {**fields, "source_state": "current", **changes}


def story(**changes: Any) -> Any:
    fields: dict[str, Any] = {
        "attempt": 2, "kind": "failure", "title": "ValueError in rank 1", "sentence": "ValueError: shapes differ",
        "rank": 1, "stream": "stderr", "offset": 10, "at": 1.0,
        "exception": {"type": "ValueError", "message": "shapes differ"},
        "frames": [frame(), frame(file="/usr/lib/torch.py", function="add", is_user=False)], "hidden_frames": 3,
        "groups": [], "same_error": [{"id": "abcdefghij", "number": 7, "name": "digits"}],
        "next_step": "Correct the code.",
    }  # fmt: skip
    return fields | changes


def shown(**changes: Any) -> list[str]:
    return printed(80, *story_lines(Console(width=80), story(**changes)))


def test_a_failure_is_shown_with_the_line_of_the_user_and_without_libraries() -> None:
    assert shown() == [
        "ValueError in rank 1",
        "  ValueError: shapes differ",
        "  train.py:10 in step",
        "       9  def step():",
        "    > 10      loss = x + y",
        "  … and 4 frames of libraries",
        "  The same error: #7 digits",
        "  Correct the code.",
    ]
    assert "  train.py:10 in step, changed since" in shown(frames=[frame(source_state="changed")])


def test_an_exception_only_in_libraries_has_its_innermost_frame() -> None:
    library = frame(file="/usr/lib/torch.py", is_user=False, source=[])
    lines = shown(frames=[library, library], hidden_frames=0, next_step=None, same_error=[])
    assert lines[2:] == ["  /usr/lib/torch.py:10 in step", "  … and 1 frame of libraries"]


def test_a_hang_is_shown_as_groups_of_ranks() -> None:
    groups = [
        {"ranks": [0, *range(2, 16)], "what": "wait in all_reduce #11 at train.py:42", "frames": []},
        {"ranks": [1], "what": "is at train.py:10", "frames": [frame()]},
    ]
    lines = shown(kind="hang", title="Hang", exception=None, frames=[], hidden_frames=0, groups=groups)
    assert "  ranks 0, 2-15 wait in all_reduce #11 at train.py:42" in lines
    assert "  rank 1 is at train.py:10" in lines
    assert "      > 10      loss = x + y" in lines
    assert rank_list([3, 1, 2, 7, 8]) == "ranks 1-3, 7, 8"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_everything_fits_and_nothing_acts_on_the_terminal(width: int) -> None:
    bad_frame = frame(file=EVIL, function=EVIL, source=[{"line": 10, "text": EVIL}])
    group = {"ranks": list(range(0, 128, 2)), "what": EVIL, "frames": [bad_frame]}
    bad = story(title=EVIL, sentence=f"{EVIL}\n" * 50, frames=[bad_frame] * 3, groups=[group], next_step=EVIL)
    bad["same_error"] = [{"id": "abcdefghij", "number": 1, "name": EVIL}]
    failed = job(state="failed", name=EVIL, warnings=[EVIL], args=[EVIL], checkpoints=[], seen_at=None)
    lines = job_lines(Console(width=width), failed, [attempt(reason=EVIL)], NO_TIME, EVIL, bad)
    overview = {name: [item(job(name=EVIL), reason=EVIL)] * 8 for name in ("needs_you", "running", "next", "done")}
    overview["counts"] = {"needs_you": 20, "running": 8, "next": 200}  # type: ignore[assignment]
    for line in (*printed(width, *lines), *printed(width, *sections(overview, []))):
        assert not CONTROLS.search(line)
        assert cell_len(line) <= max(width, 60)  # an id, a state and a step are never cut


def item(found: Any = None, **changes: Any) -> Any:
    kind = "device" if found is None else "job"
    return {"kind": kind, "reason": "", "at": None, "job": found, "experiment": None, "device": None, **changes}


def test_the_overview_has_its_sections_in_the_order_of_urgency() -> None:
    experiment = {"id": "expexpexpe", "number": 4, "name": "lr", "jobs": 12, "states": {"succeeded": 11, "failed": 1}}
    free = {"device": "cuda", "held": False, "free_share": 0.0, "unusable": None}
    slots: Any = [{**free, "held": True}, {**free, "held": True}, free, {**free, "unusable": "in use by pid 9"}]
    failed = item(job(number=3, state="failed", progress=0.3), reason="boom (rank 1)")
    overview: Any = {
        "needs_you": [failed, item(device="cuda:1", reason="in use by pid 9")],
        "running": [item(job())],
        "next": [],
        "done": [{**item(), "kind": "experiment", "experiment": experiment}],
        "counts": {"needs_you": 5, "running": 1, "next": 0},
        "alike": {failed["job"]["id"]: [{"id": "abcdefghij", "number": 2, "name": "digits"}]},
    }
    text = "\n".join(printed(80, *sections(overview, slots)))
    titles = [text.index(title) for title in ("Needs you (5)", "Running (1)", "Next: nothing", "Done")]
    assert titles == sorted(titles)
    assert "2 of 4 slots in use, 1 not usable" in text
    assert "… and 2 more" in text
    assert "2 jobs (also #2): boom" in text
    assert "cuda:1" in text
    assert "███░░░░░░░  30%" in text
    assert "E4" in text
    assert "11 succeeded, 1 failed" in text
