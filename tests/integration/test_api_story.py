"""What happened to a job, as ``GET /jobs/{id}/story`` explains it."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from rekindle.contract.files import write_json
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import RankError
from rekindle.contract.states import JobState
from rekindle_service.jobs.job_story import next_step
from rekindle_service.store.projection import RowChanges
from rekindle_service.store.tables import Job

_SCRIPT = """import torch


def step(x):
    y = x + 1
    raise ValueError('bad batch')


for x in range(3):
    step(x)
"""


KILLED = Outcome(OutcomeClass.SIGNAL, "Rank 1 was killed by SIGKILL.", rank=1, signal="SIGKILL")


class Story:
    """A job with ranks 0 and 1 whose attempts the test plays."""

    def __init__(self, server: ApiServer, code: Path, **fields: Any) -> None:
        self.server = server
        (code / "train.py").write_text(_SCRIPT)
        body = {"script": "train.py", "code": {"path": str(code)}, "device": "cpu", **fields}
        answer = server.api.post("/api/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text
        self.job = answer.json()
        self.run_dir: RunDir = server.run_dir(self.job)

    def fail(
        self, outcome: Outcome, *, attempt: int = 1, state: JobState = JobState.FAILED, before: Outcome = KILLED
    ) -> None:
        """End this attempt and the job; those ``before`` it failed by signals."""
        row = self.server.state.store.job(self.job["id"])
        assert row is not None
        attempts = {
            number: AttemptInfo(
                number, run=1, started_at=float(number), ended_at=number + 0.5,
                outcome=outcome if number == attempt else before, world_size=2,
            )
            for number in range(1, attempt + 1)
        }  # fmt: skip
        assert self.server.state.store.apply_journal(row, RowChanges(attempts=attempts, offset=1)) is not None
        self.server.move(self.job, JobState.STARTING, JobState.RUNNING, attempt=attempt)
        self.server.move(self.job, state, outcome=outcome.to_json())

    def error(self, traceback: str, *, message: str = "bad batch", attempt: int = 1, rank: int = 1) -> None:
        rank_dir = self.run_dir.attempt(attempt).rank(rank)
        rank_dir.root.mkdir(parents=True, exist_ok=True)
        record = RankError(rank, "ValueError", message, "train.py", 6, traceback, None, time.time(), 0.0)
        write_json(rank_dir.error, record.to_json())

    def read(self, **query: Any) -> dict[str, Any]:
        answer = self.server.api.get(f"/api/v1/jobs/{self.job['id']}/story", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def traceback(self, message: str = "bad batch") -> str:
        code = self.run_dir.code
        return (
            "Traceback (most recent call last):\n"
            f'  File "{code}/train.py", line 10, in <module>\n    step(x)\n    ~~~~^^^\n'
            '  File "/usr/lib/python3/site-packages/torch/nn/module.py", line 7, in __call__\n    return call(x)\n'
            f"  File \"{code}/train.py\", line 6, in step\n    raise ValueError('bad batch')\n"
            f"ValueError: {message}\n"
        )


def raised(traceback: str = "", **fields: Any) -> Outcome:
    message = "Rank 1 raised ValueError at train.py:6: bad batch"
    values = {"rank": 1, "exception": "ValueError", "file": "train.py", "line": 6, **fields}
    return Outcome(OutcomeClass.USER_ERROR, message, evidence={"traceback": traceback}, **values)


@pytest.fixture
def story(shared_server: ApiServer, code: Path) -> Story:
    return Story(shared_server, code)


@pytest.mark.parametrize(("line", "repeated"), [(6, True), (7, False)])
def test_the_same_exception_at_the_same_line_twice_is_named(
    shared_server: ApiServer, code: Path, line: int, repeated: bool
) -> None:
    story = Story(shared_server, code)
    story.fail(raised(), attempt=2, before=raised(line=line))
    found = story.read()
    assert found["repeated"] is repeated
    assert found["next_step"].startswith("The attempt before ended by the same exception") is repeated
    assert story.read(attempt=1)["repeated"] is False


def test_a_failure_shows_the_users_frames_first_with_the_lines_around_them(story: Story) -> None:
    text = story.traceback()
    story.error(text)
    log = story.run_dir.attempt(1).rank(1).log("stderr")
    log.write_text(f"a warning\n{text}")
    story.fail(raised(text))
    found = story.read()
    assert (found["kind"], found["title"]) == ("failure", "ValueError in rank 1")
    assert found["sentence"] == "Rank 1 raised ValueError at train.py:6: bad batch"
    assert (found["attempt"], found["rank"], found["stream"], found["offset"]) == (1, 1, "stderr", len("a warning\n"))
    assert found["exception"] == {"type": "ValueError", "message": "bad batch"}
    places = [(frame["file"], frame["line"], frame["function"], frame["is_user"]) for frame in found["frames"]]
    assert places == [
        ("train.py", 6, "step", True),
        ("train.py", 10, "<module>", True),
        ("/usr/lib/python3/site-packages/torch/nn/module.py", 7, "__call__", False),
    ]
    first, _, library = found["frames"]
    assert [line["line"] for line in first["source"]] == [4, 5, 6, 7, 8, 9]
    assert first["source"][2]["text"] == "    raise ValueError('bad batch')"
    assert first["source_state"] == "current"
    assert library["source"] == [{"line": 7, "text": "return call(x)"}], "other files are never opened"
    assert library["source_state"] == "unreadable"
    assert found["hidden_frames"] == 0
    assert "from the beginning" in found["next_step"]


@pytest.mark.parametrize(
    ("snapshot_step", "checkpoints", "start"),
    [
        (40, [("last.pt", 1, None)], "continues from step 40"),
        (None, [], "starts from the beginning"),
        (None, [("weights.pt", 0, None)], "starts from the beginning"),
        (None, [("last.pt", 1, None)], "starts from last.pt if the script loads it, else from the beginning"),
        (
            None,
            [("new.pt", 3, None), ("old.pt", 1, 2)],
            "loads the script's latest checkpoint, new.pt, as attempt 2 did",
        ),
        (None, [("old.pt", 0, 1)], "loads the script's latest checkpoint, old.pt, as attempt 1 did"),
    ],
)
def test_the_next_step_names_the_snapshot_or_checkpoint_that_a_retry_begins_with(
    snapshot_step: int | None, checkpoints: list[tuple[str, int, int | None]], start: str
) -> None:
    rows = [
        {"path": path, "attempt": attempt, "loaded": loaded, "complete": True} for path, attempt, loaded in checkpoints
    ]
    job = Job(state=JobState.FAILED, snapshot_step=snapshot_step, checkpoints=rows)
    assert (next_step(job, raised()) or "").endswith(f" A retry {start}.")


def test_a_traceback_of_ten_thousand_lines_is_cut_to_twenty_frames(story: Story) -> None:
    code = story.run_dir.code
    frame = f'  File "{code}/train.py", line 5, in step\n    y = x + 1\n'
    text = (
        f"Traceback (most recent call last):\n{frame * 5000}  [Previous line repeated 974 more times]\nValueError: x\n"
    )
    text += "\n".join(f"line {number}" for number in range(10_000))
    story.error(text, message="x")
    story.fail(raised(text))
    found = story.read()
    assert len(found["frames"]) == 20
    assert found["hidden_frames"] == 4980 + 974
    assert all(len(each["source"]) <= 7 for each in found["frames"])


def test_source_that_has_changed_or_cannot_be_read_is_marked(story: Story) -> None:
    text = story.traceback()
    story.fail(raised(text))
    script = story.run_dir.code / "train.py"
    script.write_text(_SCRIPT.replace("y = x + 1", "y = x + 2"))
    assert {frame["source_state"] for frame in story.read()["frames"][:2]} == {"changed"}
    script.write_text("short\n")
    assert story.read()["frames"][0]["source"] == [{"line": 6, "text": "raise ValueError('bad batch')"}]
    script.write_bytes(_SCRIPT.replace("import torch", "# caf\xe9 \x1b[31m").encode("latin-1"))
    found = story.read()["frames"][0]
    assert found["source_state"] == "changed"
    assert found["source"][2]["text"] == "    raise ValueError('bad batch')"
    for content in (b"\0" * 100, b"x" * (2 << 20)):
        script.write_bytes(content)
        assert story.read()["frames"][0]["source_state"] == "unreadable"
    script.unlink()
    os.mkfifo(script)
    assert story.read()["frames"][0]["source_state"] == "unreadable"
    script.unlink()
    script.symlink_to("/etc/passwd")
    assert story.read()["frames"][0]["source"] == [{"line": 6, "text": "raise ValueError('bad batch')"}]


def test_a_hang_shows_the_groups_of_ranks_and_what_they_wait_in(story: Story) -> None:
    code = story.run_dir.code
    waits = (
        "Current thread 0x00007f0000000001 (most recent call first):\n"
        '  File "/lib/torch/distributed/distributed_c10d.py", line 2806 in all_reduce\n'
        '  File "/lib/torch/distributed/c10d_logger.py", line 81 in wrapper\n'
        f'  File "{code}/train.py", line 5 in step\n  File "{code}/train.py", line 10 in <module>\n'
    )
    sleeps = waits.replace(
        '"/lib/torch/distributed/distributed_c10d.py", line 2806 in all_reduce', f'"{code}/train.py", line 6 in load'
    )
    sleeps = sleeps.replace('  File "/lib/torch/distributed/c10d_logger.py", line 81 in wrapper\n', "")
    evidence = {
        "stacks": {"0": waits, "1": sleeps, "2": waits, "3": "", "x": waits, "4": 7},
        "collectives": {"0": 11, "1": 10, "2": 11},
    }
    message = "No progress for 30 s: rank 0 waits in collective 31; rank 1 is still at train.py:6."
    story.fail(Outcome(OutcomeClass.HANG, message, rank=1, file="train.py", line=6, evidence=evidence))
    found = story.read()
    assert (found["kind"], found["title"]) == ("hang", "Hang: the others waited for rank 1")
    assert [(group["ranks"], group["what"]) for group in found["groups"]] == [
        ([1], "is at train.py:6, after collective #10"),
        ([0, 2], "wait in all_reduce #11 at train.py:5"),
    ]
    assert [frame["function"] for frame in found["frames"]] == ["load", "step", "<module>"]
    assert found["stream"] == "stderr"
    rank_dir = story.run_dir.attempt(1).rank(1)
    rank_dir.root.mkdir(parents=True)
    rank_dir.log("stdout").write_text("step 5\n")
    assert story.read()["stream"] == "stdout", "an empty log is no place to open"
    assert found["groups"][1]["frames"][0]["source"][1]["text"] == "    y = x + 1"
    assert found["same_error"] == []


def test_jobs_with_the_same_error_are_listed(server: ApiServer, code: Path) -> None:
    jobs = [Story(server, code, name=f"job {number}") for number in range(3)]
    jobs[0].fail(raised())
    jobs[1].fail(raised(line=7))
    jobs[2].fail(raised())
    assert [job["name"] for job in jobs[2].read()["same_error"]] == ["job 0"]
    assert jobs[1].read()["same_error"] == []


def test_the_story_follows_the_job_and_each_of_a_hundred_attempts_has_its_own(server: ApiServer, code: Path) -> None:
    story = Story(server, code)
    waiting = story.read()
    assert (waiting["kind"], waiting["title"], waiting["attempt"]) == ("waiting", "Queued", 0)
    story.fail(raised(story.traceback()), attempt=100)
    assert story.read()["attempt"] == 100
    earlier = story.read(attempt=7)
    assert (earlier["title"], earlier["frames"], earlier["next_step"]) == ("SIGKILL in rank 1", [], None)
    unknown = server.api.get(f"/api/v1/jobs/{story.job['id']}/story?attempt=101")
    assert unknown.status_code == 404


def test_what_a_job_writes_into_its_records_neither_breaks_the_story_nor_leaves_the_run_directory(story: Story) -> None:
    hostile = (
        '  File "/etc/passwd", line 1, in <module>\n  File "' + "../" * 50 + f'etc/passwd", line {"9" * 5000}, in x\n'
    )
    hostile += f'  File "{story.run_dir.code}/../environment.json", line 1, in \x1b]0;title\x07x\n\x00\ud800'
    story.error(hostile, message="<img src=x>\x1b[2J" * 500)
    story.fail(raised(hostile))
    found = story.read()
    assert not any(frame["is_user"] or frame["source"] for frame in found["frames"])
    assert "\x1b" not in str(found)
    assert len(found["exception"]["message"]) <= 4000
    (story.run_dir.attempt(1).rank(1).error).write_bytes(b"\xff{")
    assert story.read()["exception"]["message"].startswith("Rank 1 raised")
