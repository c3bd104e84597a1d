"""A job of higher priority gets the slots of a running one, which loses no step and ends with the same weights."""

from pathlib import Path

from e2e.resizable_job import EVERY_SAMPLE_ONCE, EVERY_STEP, Holder, ResizableJob, undisturbed
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings


def test_a_preempted_job_goes_back_to_the_queue_and_ends_as_if_nothing_had_happened(home: Path, tmp_path: Path) -> None:
    settings = {"REKINDLE_MIN_RUN_SECONDS": "1"}
    with ServeProcess(home, environment=settings), Client.from_home(Settings(home=home)) as client:
        low = ResizableJob(client, home, tmp_path / "low", ranks=4)
        expected = undisturbed(tmp_path / "alone")
        until(lambda: low.steps() and len(low.steps()[0]) >= 3, "it trains")
        equal = Holder(client, tmp_path / "equal", slots=1)
        high = Holder(client, tmp_path / "high", slots=2, priority=5)
        high.reach_running()
        job = low.job()
        assert (job["state"], job["intent"], job["preemptions"], job["displaced"]) == ("queued", "run", 1, None)
        high.release()
        low.reach(4, attempt=2)
        assert equal.state() == "queued", "it was submitted later"
        low.hurry()
        assert low.finish() == expected()
        job, by = low.job(), client.job(high.id)
        assert (job["restarts"], job["preemptions"]) == (0, 1)
        message = (
            f'Saved and stopped on request. Job "{by["name"]}" (#{by["number"]}) of {by["owner"]}, of priority 5, '
            "gets its slots."
        )
        assert low.outcomes() == [("preempted", message), ("success", "Every rank finished.")]
        assert [step for steps in low.steps() for step in steps] == EVERY_STEP, "no step is lost, none is done twice"
        assert low.samples() == EVERY_SAMPLE_ONCE
        equal.release()
