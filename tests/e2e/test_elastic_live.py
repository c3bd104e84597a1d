"""An elastic job gets the slots that are free, gives them up for others, and trains as if it had never changed."""

from pathlib import Path

from e2e.resizable_job import EVERY_SAMPLE_ONCE, EVERY_STEP, Holder, ResizableJob, undisturbed
from e2e.serve_process import ServeProcess
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings


def test_an_elastic_job_grows_is_squeezed_grows_again_and_leaves_a_slot_that_fails(home: Path, tmp_path: Path) -> None:
    settings = {"REKINDLE_MIN_RUN_SECONDS": "1"}
    with ServeProcess(home, environment=settings), Client.from_home(Settings(home=home)) as client:
        elastic = ResizableJob(client, home, tmp_path / "elastic", ranks={"min": 1, "max": 4})
        elastic.reach(4, attempt=1)
        squeezing = Holder(client, tmp_path / "squeezing", slots=3, priority=1)
        elastic.reach(1, attempt=2)
        squeezing.reach_running()
        expected = undisturbed(tmp_path / "alone")
        assert elastic.job()["devices"] == ["cpu:0"]
        squeezing.release()
        elastic.reach(4, attempt=3)
        client.disable_device("cpu:1", "it is too hot")
        elastic.reach(3, attempt=4)
        assert elastic.job()["devices"] == ["cpu:0", "cpu:2", "cpu:3"]
        elastic.hurry()
        assert elastic.finish() == expected()
        job = elastic.job()
        assert (job["restarts"], job["preemptions"], job["displaced"]) == (0, 0, None)
        assert [klass for klass, _ in elastic.outcomes()] == ["preempted", "preempted", "preempted", "success"]
        assert "cpu:1 is not used any more" in elastic.outcomes()[2][1]
        assert [step for steps in elastic.steps() for step in steps] == EVERY_STEP
        assert elastic.samples() == EVERY_SAMPLE_ONCE
