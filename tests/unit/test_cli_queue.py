"""`rekindle queue` fits 80 columns and shows why each job waits; other commands name the job that displaced another."""

from datetime import datetime, timedelta
from typing import Any

from rich.cells import cell_len

from cli_examples import job, printed
from rekindle_service.cli import formatting
from rekindle_service.cli.commands.job_tables import half_life, owner_table, queue_parts, reason

HOSTILE = "\x1b[2J恶意 name of a job that is longer than its column"


def waiting(**changes: Any) -> Any:
    """A job in the queue, as GET /queue has it."""
    fields: dict[str, Any] = {
        "position": 1, "job": "abcdefghij", "number": 14, "name": "resnet", "owner": "ann", "priority": 0,
        "ranks": {"min": 4, "max": 8}, "slots": 4.0, "device": "cuda", "intent": "run",
        "waiting_for": "4 GPU slots, 1 free", "reason": "waiting for 4 GPU slots, 1 free", "estimated_start_at": None,
        "preemptions": 0, "created_at": "2026-01-02T03:04:05Z",
    }  # fmt: skip
    return fields | changes


def owner(name: str, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "owner": name, "slot_seconds": 5400.0, "share": 0.75, "slots": 2.0, "running": 1, "queued": 3,
        "max_slots": None, "max_queued": None,
    }  # fmt: skip
    return fields | changes


def queue(*jobs: Any, owners: Any = (), **changes: Any) -> Any:
    fields = {"items": list(jobs), "next": None, "owners": list(owners), "queued": len(jobs), "half_life_days": 7.0}
    return fields | changes


def lines(found: Any) -> list[str]:
    return printed(80, *queue_parts(found))


def test_a_job_has_its_position_on_one_line_and_its_reason_below() -> None:
    head, row, why = lines(queue(waiting()))
    assert head.split() == ["POS", "#", "JOB", "OWNER", "PRIORITY", "SLOTS", "STARTS"]
    assert row.split() == ["1", "14", "resnet", "ann", "0", "4", "cuda", "-"]
    assert why.strip() == "waiting for 4 GPU slots, 1 free"


def test_no_line_is_wider_than_80_columns_nor_acts_on_the_terminal() -> None:
    long = waiting(name=HOSTILE, owner=HOSTILE, reason=HOSTILE * 4, position=200, number=123456, priority=-1000)
    found = queue(long, waiting(), queued=10_000, owners=[owner(HOSTILE)], next="a cursor")
    assert all(cell_len(line) <= 80 and "\x1b" not in line for line in lines(found))
    assert "2 of 10000 queued jobs; --limit shows more" in lines(found)
    assert "--limit" not in "".join(lines(queue(waiting(), queued=40))), "the others are of other owners"


def test_the_reason_is_a_sentence() -> None:
    assert reason(waiting(intent="hold")) == "On hold. Start it: `rekindle resume resnet`"
    preempted = waiting(reason="waiting for job abc to succeed", preemptions=2)
    assert reason(preempted) == "waiting for job abc to succeed; preempted twice"


def test_slots_of_a_shared_gpu_and_of_slurm() -> None:
    cells = [lines(queue(waiting(**changes)))[1] for changes in ({"slots": 0.25}, {"slots": 0.0, "device": "slurm"})]
    assert "0.25 cuda" in cells[0]
    assert "slurm" in cells[1]
    assert lines(queue()) == ["No job waits in the queue."]


def test_owners_are_shown_with_what_they_have_used_and_may_use() -> None:
    owners = [owner("ann", max_slots=4, max_queued=100), owner("bob", share=0.25)]
    head, ann, bob = printed(80, owner_table(queue(owners=owners)))
    assert head.split() == ["OWNER", "SHARE", "SLOT-HOURS", "SLOTS", "RUNNING", "QUEUED", "LIMITS"]
    assert ann.split(maxsplit=6) == ["ann", "75%", "1.50", "2", "1", "3", "4 slots, 100 queued"]
    assert bob.split()[-1] == "-"
    assert "count half after 1 day;" in half_life(queue(half_life_days=1.0))


def test_a_start_is_shown_as_a_time_of_day_or_a_day() -> None:
    now = datetime.now().astimezone().replace(minute=0, second=0, microsecond=0)
    soon, in_days, far = (now + timedelta(hours=2), now + timedelta(days=3), now + timedelta(days=30))
    assert formatting.start_time(soon.isoformat()) == f"{soon:%H:00}"
    assert formatting.start_time((soon + timedelta(seconds=1)).isoformat()) == f"{soon:%H:05}"
    assert formatting.start_time(in_days.isoformat()) == f"{in_days:%a %H:00}"
    assert formatting.start_time(far.isoformat()) == f"{far:%m-%d}"
    assert formatting.start_time(None) == "-"


def test_an_estimate_is_shown_once_and_what_a_job_was_stopped_for() -> None:
    at = datetime.now().astimezone().replace(minute=0, second=0, microsecond=0) + timedelta(hours=2)
    estimated = job(
        state="queued", queue_position=2, reason="waiting for 2 CPU slots, 1 free", estimated_start_at=at.isoformat()
    )
    assert formatting.status_line(estimated).startswith("waiting for 2 CPU slots, 1 free; position 2")
    assert formatting.status_line(estimated).endswith(f"; starts about {at:%H:%M}")
    displaced = {"kind": "preempt", "by": "abc", "reason": "Job #12, of priority 5, gets its slots.", "at": 1.0}
    assert formatting.status_line(job(displaced=displaced)) == (
        "being preempted: Job #12, of priority 5, gets its slots."
    )
    assert formatting.status_line(job(state="queued", preemptions=1)) == "preempted once"
