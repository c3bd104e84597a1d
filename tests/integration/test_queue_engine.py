"""The queue with the real engine and keepers that are fakes: limits, holds and dependencies take effect at once."""

from pathlib import Path
from typing import Any

import pytest

from e2e.waiting import until
from fakes.launching import launch_fake
from job_examples import an_experiment, cpu_machine, open_store, queued_job
from rekindle.contract.states import HOLDING_SLOTS, JobIntent, JobState
from rekindle_service.config.home import Home
from rekindle_service.config.settings import Quota
from rekindle_service.jobs import actions
from rekindle_service.jobs.quotas import Quotas
from rekindle_service.scheduler.reconciler import Reconciler
from rekindle_service.store.tables import Job


class Lab:
    """A home whose engine makes an iteration when it is asked to."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.home.create()
        self.store = open_store(root)
        self.keepers: list[Any] = []
        self.engine = self.new_engine()

    def new_engine(self) -> Reconciler:
        quotas = Quotas({"ann": Quota(slots=2, queued=None)})
        return Reconciler(self.store, self.home, cpu_machine(4), self._launch, quotas=quotas)

    def _launch(self, job: Job) -> Any:
        self.keepers.append(launch_fake(self.home)(job))
        return self.keepers[-1]

    def submit(self, part: str, **columns: Any) -> Job:
        return queued_job(self.store, self.home, args=[part], **columns)

    def row(self, job: Job) -> Job:
        found = self.store.job(job.id)
        assert found is not None
        return found

    def reach(self, job: Job, state: JobState) -> None:
        def there() -> bool:
            self.engine.reconcile()
            return self.row(job).state is state

        until(there, f"{job.name} to be {state}", 60)

    def holding(self) -> list[str]:
        self.engine.reconcile()
        return [job.name for job in self.store.jobs_in(HOLDING_SLOTS)]

    def close(self) -> None:
        for keeper in self.keepers:
            keeper.kill()
            keeper.wait()
        self.engine.close()
        self.store.close()


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    lab = Lab(tmp_path / "home")
    yield lab
    lab.close()


def test_quotas_limits_holds_and_dependencies_let_others_pass_and_take_effect_at_once(lab: Lab) -> None:
    first = lab.submit("wait", name="first", owner="ann")
    lab.submit("wait", name="second", owner="ann")
    third = lab.submit("wait", name="third", owner="ann")
    held = lab.submit("wait", name="held", intent=JobIntent.HOLD, owner="bob")
    after = lab.submit("succeed", name="after", owner="bob", after_any=[first.id])
    assert lab.holding() == ["first", "second"]
    reasons = {job.name: job.waiting_for for job in lab.store.queue.jobs()}
    assert reasons == {
        "third": "its owner ann holds 2 of 2 slots",
        "held": "held: it starts when it is resumed",
        "after": f"{first.name} (#{first.number}) to end",
    }
    actions.cancel(lab.store, first.id)
    lab.reach(first, JobState.CANCELLED)
    lab.reach(after, JobState.SUCCEEDED)
    lab.engine.reconcile()
    assert lab.row(third).state in HOLDING_SLOTS
    actions.resume(lab.store, held.id)
    lab.engine.reconcile()
    assert lab.row(held).state in HOLDING_SLOTS


def test_an_experiment_holds_as_many_slots_at_once_as_it_may_also_after_a_restart_of_the_server(lab: Lab) -> None:
    lab.store.experiments.add(an_experiment("e" * 10), [])
    jobs = [lab.submit("wait", name=f"job {n}", experiment_id="e" * 10, parallel=2, owner="bob") for n in range(4)]
    assert lab.holding() == ["job 0", "job 1"]
    lab.engine.close()
    lab.engine = lab.new_engine()
    lab.engine.recover()
    assert lab.holding() == ["job 0", "job 1"]
    actions.cancel(lab.store, jobs[0].id)
    lab.reach(jobs[0], JobState.CANCELLED)
    assert lab.holding() == ["job 1", "job 2"]


def test_what_an_owner_has_used_decides_who_is_next_also_after_a_restart_of_the_server(lab: Lab) -> None:
    lab.store.usage.write({"bob": 1e9, "cem": 50.0}, 2e9)
    blocker = lab.submit("wait", name="blocker", owner="cem", min_ranks=4, max_ranks=4)
    assert lab.holding() == ["blocker"]
    for owner in ("bob", "dee"):
        lab.submit("wait", name=f"of {owner}", owner=owner, min_ranks=4, max_ranks=4)
    lab.engine.reconcile()
    positions = {job.name: job.queue_position for job in lab.store.queue.jobs()}
    assert positions == {"of bob": 2, "of dee": 1}
    lab.engine.close()
    lab.engine = lab.new_engine()
    actions.cancel(lab.store, blocker.id)
    lab.reach(blocker, JobState.CANCELLED)
    assert lab.holding() == ["of dee"]
    used = lab.store.usage.read()
    assert used["bob"].slot_seconds > used["cem"].slot_seconds > 50.0
