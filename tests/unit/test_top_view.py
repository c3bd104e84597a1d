"""What `rekindle top` draws fits the terminal, whatever there is to draw."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from cli_examples import attempt, job, printed
from rekindle_service.cli.commands import top
from rekindle_service.cli.commands.top import Screen, parse_keys
from rekindle_service.cli.commands.top_views import Controls, JobView, KeyRequest, MachineView, View, frame, full_view
from rekindle_service.cli.context import candidates
from rekindle_service.client import ProblemError

BAR = "███░░░░░░░ 30%"
_STEPS: Any = {"attempt": None, "step_seconds": None, "seconds": {}, "summary": ""}
_HOSTILE = "\x1b]0;owned\x07\x1b[2J[bold]x[/bold]\r\nnext\u202e" + "wide " * 60


def slot(index: int, holder: Any = None) -> Any:
    job_id, name, state = (None,) * 3 if holder is None else (holder["id"], holder["name"], holder["state"])
    fields = {"name": f"cpu:{index}", "device": "cpu", "index": index, "title": "CPU slot", "memory": None}
    fields |= {"free_share": 0.0 if holder else 1.0, "unusable": None}
    return {**fields, "uuid": None, "job": job_id, "job_name": name, "job_state": state, "held": holder is not None}


def rank(number: int, **changes: Any) -> Any:
    fields = {"rank": number, "state": "running", "phase": "train", "step": 120, "steps": 400, "last_line": "loss 0.1"}
    return {**fields, "steps_per_second": 10.0, "heartbeat_age": 0.4, "straggler": None, **changes}


def drawn(view: View, width: int, height: int, warning: str = "", controls: Controls | None = None) -> list[str]:
    console = Console(width=width, height=height, markup=False, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(frame(view, controls or Controls(), warning, width, height))
    return capture.get().splitlines()


def machine(jobs: int = 3, slots: int = 4, **changes: Any) -> MachineView:
    made = [job(id=f"job{number:07}", number=number, **changes) for number in range(jobs)]
    return MachineView([slot(index, made[0] if made and index < 2 else None) for index in range(slots)], made, [])


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 10), (20, 5), (10, 3)])
@pytest.mark.parametrize(
    "view",
    [
        machine(jobs=200, slots=64),
        machine(name=_HOSTILE, notice=_HOSTILE, phase=_HOSTILE),
        JobView(job(name=_HOSTILE), [attempt()], [rank(each, last_line=_HOSTILE) for each in range(64)], _STEPS),
        MachineView([], [], []),
        JobView(job(state="queued"), [], [], _STEPS),
    ],
)
def test_no_frame_is_larger_than_the_terminal_nor_acts_on_it(view: View, size: tuple[int, int]) -> None:
    lines = drawn(view, *size, warning="Server unreachable")
    assert len(lines) <= size[1]
    assert all(len(line) <= size[0] for line in lines)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", "".join(lines))


def test_what_keeps_the_server_from_answering_is_shown_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([ProblemError({"status": 503, "detail": "the files of job a do not respond"}), machine()])

    def poll(*_: Any) -> View:
        answer = next(answers)
        if isinstance(answer, ProblemError):
            raise answer
        return answer

    monkeypatch.setattr(top, "_poll", poll)
    drawings: list[str] = []
    live: Any = SimpleNamespace(update=lambda shown, **_: drawings.append("\n".join(printed(200, shown))))
    screen: Any = Screen(None, None, machine(), "a")  # type: ignore[arg-type]
    screen._policy.on_success()
    for _ in range(2):
        screen._refresh()
        screen._draw(live)
    found = [": the files of job a do not respond; jobs keep running" in each for each in drawings]
    assert found == [True, False]


def test_rows_that_do_not_fit_are_counted() -> None:
    lines = drawn(machine(jobs=50), 120, 20)
    shown = sum("digits" in line and "running" in line for line in lines[4:])
    assert lines[-1] == f"… and {50 - shown} more"


def test_a_job_is_shown_with_its_progress_and_its_outcome() -> None:
    recovering = job(state="recovering", restarts=2, outcome=attempt()["outcome"], steps_per_second=None)
    lines = drawn(MachineView([slot(0, recovering), slot(1)], [recovering], []), 140, 20)
    assert lines[1] == "1 recovering"
    assert " ".join(lines[2].split()) == "cpu " + "█" * 12 + "░" * 12 + " 1 of 2 slots in use"
    assert lines[3].split() == ["cpu:0", "digits", "cpu:1", "free"]
    assert " ".join(lines[6].split()).startswith(f"3 digits recovering 120/400 {BAR} - 28 s")
    assert "rank 1 was killed by SIGKILL" in lines[6]


def test_a_job_shows_its_ranks_and_marks_the_straggler() -> None:
    ranks = [rank(0), rank(1, straggler=0.45, heartbeat_age=75, last_line=None)]
    lines = drawn(JobView(job(), [attempt()], ranks, _STEPS), 140, 20)
    assert "attempt 1 ended: signal: rank 1 was killed by SIGKILL" in "".join(lines)
    assert " ".join(lines[-2].split()) == f"0 running train 120/400 {BAR} 10/s 0.4 s ago - loss 0.1"
    assert "1 min 15 s ago" in lines[-1]
    assert "45% of the time" in lines[-1]


def test_without_a_terminal_every_row_is_printed() -> None:
    console = Console(width=100_000, markup=False, color_system=None)
    with console.capture() as capture:
        console.print(full_view(machine(jobs=50)))
    assert capture.get().count("digits") == 50 + 1


def test_only_plain_words_are_offered_to_a_shell() -> None:
    names = ["digits", "$(reboot)", "two words", "digits", "-rf", "dig;ls", "x`y`"]
    jobs = [job(id=f"abcdefgh{number:02}", number=number, name=name) for number, name in enumerate(names)]
    offered = [word for word, _ in candidates(jobs, "")]
    assert offered[0] == "digits"
    assert set(offered[1:]) == {each["id"] for each in jobs[1:]}
    assert [word for word, _ in candidates(jobs, "di")] == ["digits"]
    assert [word for word, _ in candidates(jobs, "abcdefgh05")] == ["abcdefgh05"]


# --- keys


def test_keys_are_read_one_by_one_and_unknown_ones_ignored() -> None:
    assert parse_keys("j\x1b[A\x1bOB\r\x7f/é\x1b") == ["j", "up", "down", "enter", "backspace", "/", "é", "escape"]
    assert parse_keys("\x1b[5~\x1b[1;5C\x00\x01") == []


def test_the_selected_row_stays_selected_while_rows_move_and_is_always_shown() -> None:
    view, controls = machine(jobs=50), Controls()
    rows = [row.id for row in view.rows(controls)]
    for _ in range(30):
        assert controls.press("down", rows) is None
    assert controls.selected == rows[30]
    assert any(line.startswith("19 ") for line in drawn(view, 80, 20, controls=controls))  # the latest is 49
    controls.press("s", rows)
    assert controls.order == "name"
    assert controls.selected == rows[30]
    assert controls.position(["gone"]) == 0


def test_a_filter_is_typed_and_cleared_by_keys() -> None:
    jobs = [job(number=1, name="Digits"), job(number=2, name="words", state="queued", queue_position=1)]
    view, controls = MachineView([], jobs, []), Controls()
    for key in ("/", *"qXdig", "backspace", "backspace"):
        assert controls.press(key, []) is None
    assert "filter: qXd" in drawn(view, 80, 20, controls=controls)[0]
    for key in (*["backspace"] * 3, *"DIG", "enter"):
        controls.press(key, [])
    assert [row.cells[1] for row in view.rows(controls)] == ["Digits"]
    controls.press("escape", [])
    assert len(view.rows(controls)) == 2
    assert [controls.press(key, []) for key in ("escape", "q")] == [KeyRequest.BACK, KeyRequest.QUIT]


def test_jobs_are_sorted_by_what_a_key_chooses() -> None:
    jobs = [job(number=1, name="b", progress=0.1, restarts=0), job(number=2, name="a", progress=0.9, restarts=3)]
    view = MachineView([], jobs, [])
    orders = {order: [row.cells[0] for row in view.rows(Controls(order))] for order in ("queue", "name", "done")}
    assert orders == {"queue": ["2", "1"], "name": ["2", "1"], "done": ["2", "1"]}
    assert [row.cells[0] for row in view.rows(Controls("left"))] == ["1", "2"]
