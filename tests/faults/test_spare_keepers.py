"""A job that a spare keeper has started cannot know it, and no job knows of another one that it has started."""

import json
from typing import Any

from e2e.waiting import until
from faults.conftest import Begin
from forked_keeper import ForkedTestKeeper
from rekindle.contract.job_options import LaunchMode


def state_of(prepare: Begin, *, cold: bool, **environment: str) -> dict[str, Any]:
    run = prepare("process_state.py", ranks=1, launch=LaunchMode.PROCESS)
    run.start(cold=cold, **environment)
    assert cold != isinstance(run.keeper, ForkedTestKeeper)
    assert run.finish() == "succeeded"
    found: dict[str, Any] = json.loads(run.log(0).replace(str(run.run_dir.root), "RUN"))
    return found


def test_a_job_of_a_spare_keeper_inherits_what_any_other_does_and_nothing_of_the_job_before_it(prepare: Begin) -> None:
    first = state_of(prepare, cold=False, SECRET="1", TZ="Asia/Tokyo", TMPDIR="/dev/shm")  # noqa: S108  # no file
    assert first["environ"]["SECRET"] == "1"
    assert (first["time zone"], first["tmp"]) == (["JST", "JST"], "/dev/shm")  # noqa: S108  # as above
    assert state_of(prepare, cold=False, TZ="UTC") == state_of(prepare, cold=True, TZ="UTC")


def test_processes_of_a_job_of_a_spare_keeper_are_found_by_their_environment_and_end_with_it(begin: Begin) -> None:
    run = begin("ddp.py")
    assert isinstance(run.keeper, ForkedTestKeeper)
    run.reach_step(1)
    assert {run.keeper.pid, run.pid(0), run.pid(1)} <= set(run.processes())
    run.kill_keeper()
    until(lambda: not run.processes(), "the kernel has ended agent and ranks", 5)
    run.start(cold=True)
    assert run.finish() == "succeeded"
