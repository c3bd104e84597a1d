"""Jobs and attempts as the API returns them, and what a terminal shows, for the tests of the command line."""

import re
from typing import Any

from rich.console import Console, RenderableType

CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")
"""What a terminal would act upon; a line feed apart."""
NO_TIME: Any = {
    "goodput": None,
    "seconds": dict.fromkeys(("queued", "waiting", "starting", "training", "saving", "replayed", "stalled"), 0.0),
    "intervals": [],
}


def printed(width: int, *parts: RenderableType) -> list[str]:
    """Lines of a terminal without colours."""
    console = Console(width=width, markup=False, highlight=False, color_system=None, soft_wrap=True)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get().splitlines()


def job(**changes: Any) -> Any:
    """A job in the middle of its training."""
    fields: dict[str, Any] = {
        "id": "abcdefghij",
        "number": 3,
        "name": "digits",
        "state": "running",
        "phase": "train",
        "intent": "run",
        "attempt": 1,
        "world_size": 2,
        "ranks": {"min": 2, "max": 2},
        "devices": ["cpu:0", "cpu:1"],
        "epoch": 1,
        "epochs": 4,
        "step": 120,
        "steps": 400,
        "progress": 0.3,
        "eta_seconds": 28.0,
        "steps_per_second": 10.0,
        "restarts": 0,
        "outcome": None,
        "next_try_at": None,
        "queue_position": None,
        "waiting_for": None,
        "reason": "",
        "priority": 0,
        "target": {"kind": "script", "value": "train.py"},
        "args": ["--lr", "0.1"],
        "snapshot_step": 100,
        "checkpoints": [],
        "estimated_step": None,
        "estimated_epoch": None,
        "notice": None,
        "created_at": "2026-01-02T03:04:05Z",
        "started_at": "2026-01-02T03:04:06Z",
        "ended_at": None,
        "goodput": 0.97,
        "python": "/usr/bin/python3",
        "owner": "ada",
        "estimated_start_at": None,
        "displaced": None,
        "preemptions": 0,
    }
    return fields | changes


def attempt(number: int = 1, **changes: Any) -> Any:
    """An attempt that has ended with rank 1 killed."""
    fields: dict[str, Any] = {
        "number": number,
        "state": "ended",
        "started_at": "2026-01-02T03:04:06Z",
        "ranks_running_at": "2026-01-02T03:04:07Z",
        "ended_at": "2026-01-02T03:05:00Z",
        "outcome": outcome(),
        "start": "from the start",
        "resumed_from_step": None,
        "resumed_from_path": None,
        "last_step": 133,
        "snapshot_step": 120,
        "world_size": 2,
        "devices": ["cpu:0", "cpu:1"],
        "next_try_at": None,
        "reason": None,
        "faults": [],
        "replayed_steps": 13,
        "args": None,
    }
    return fields | changes


def outcome(**changes: Any) -> Any:
    """Rank 1 was killed."""
    fields: dict[str, Any] = {
        "class": "signal",
        "message": "rank 1 was killed by SIGKILL",
        "rank": 1,
        "exit_code": None,
        "signal": "SIGKILL",
        "exception": None,
        "file": None,
        "line": None,
    }
    return fields | changes
