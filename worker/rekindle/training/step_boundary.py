"""What all ranks do between two steps, in agreement: save, gather what was logged, go back, stop."""

import time
from dataclasses import dataclass, field, replace

from rekindle.training.agreement import Agreement, Decision
from rekindle.training.drain import Drained, DrainWatch
from rekindle.training.logbook import Logbook
from rekindle.training.non_finite import NonFinitePolicy, first_non_finite_loss
from rekindle.training.process_group import World
from rekindle.training.progress import Progress
from rekindle.training.reporting import reporter
from rekindle.training.restoring import Restored
from rekindle.training.sampler import ElasticSampler
from rekindle.training.saving import Saving
from rekindle.training.training_state import TrainingState


@dataclass(slots=True)
class StepBoundary:
    """Every method is called by all ranks at the same step.

    What is due is asked at the beginning of a step, while nobody waits for the answer, and done at its end.
    """

    world: World
    agreement: Agreement
    progress: Progress
    state: TrainingState
    saving: Saving
    drain: DrainWatch
    logbook: Logbook
    non_finite: NonFinitePolicy
    _later: Decision = field(default_factory=Decision)  # decided, to be done at the end of the epoch
    _left_at: float | None = None  # seconds of CLOCK_MONOTONIC, since when the training goes on within its epoch

    def begin_step(self, sampler: ElasticSampler) -> None:
        self.progress.begin_step(sampler)
        now, leads = time.monotonic(), self.saving.snapshots.leads
        self.agreement.begin(
            Decision(
                drain=self.drain.requested(),
                snapshot=leads and self.saving.schedule.due_after_step(self.progress.step + 1, now),
                copy=leads and self.saving.copy_due(now),
                flush=leads and self.logbook.due(now),
                writing=self.saving.writing,
            )
        )

    def end_step(self, sampler: ElasticSampler) -> None:
        """What is due at the end of the epoch waits for what the script does there, such as a scheduler's step.

        So does a drain: the script may use its last loss there, which no snapshot has. Since it may also do there what
        takes longer than whoever asked for the drain will wait, the step is saved first.
        """
        self._count_step(sampler)
        decision = self.agreement.settle()
        if self._left_at is not None:
            seconds = time.monotonic() - self._left_at
            self.saving.schedule.costs.add_step(seconds, writing=decision.writing)
        if not sampler.finished:
            self._act(decision)
        else:
            self._later = decision
            if decision.drain:
                self._write_log()
                self._save_now()
        self._left_at = time.monotonic()

    def end_epoch(self) -> None:
        decision, self._later, self._left_at = self._later | self.agreement.settle(), Decision(), None
        self._count_step_left()
        ended = self.progress.end_epoch()
        is_last, schedule = self.progress.finished, self.saving.schedule
        due = self.saving.snapshots.leads and schedule.due_after_epoch(ended, time.monotonic())
        vote = Decision(self.drain.requested(), due or is_last, flush=True, writing=self.saving.writing)
        answer = self.agreement.ask(vote)
        decision = replace(decision | answer, drain=(decision | answer).drain and not is_last, writing=answer.writing)
        self._write_log()
        is_best = self.saving.best.beaten_at(self.progress.step)
        if is_best or (decision.snapshot and schedule.insists_after_epoch(ended)):
            self._collect()
            decision = replace(decision, snapshot=True, writing=False)
        self._carry_out(decision, must_save=is_last)

    def finish(self) -> None:
        """Save what the script has trained since the last snapshot, if it ended before its epochs did."""
        self.agreement.settle()
        self._count_step_left()
        self._write_log()
        best = self.saving.best
        if best.by is not None and not best.seen:
            reporter().warn(f"monitor={best.by!r}: the script logged no such metric, so no best snapshot was kept")
        self._save_now()

    def _count_step_left(self) -> None:
        if self.progress.left_in_step and self.progress.sampler is not None:
            self._count_step(self.progress.sampler)

    def _count_step(self, sampler: ElasticSampler) -> None:
        self.progress.end_step(sampler)
        reporter().place(step=self.progress.step)

    def _act(self, decision: Decision) -> None:
        if decision.flush or decision.snapshot or decision.copy or decision.drain:
            self._write_log()
        self._carry_out(decision)

    def _carry_out(self, decision: Decision, *, must_save: bool = False) -> None:
        """Do what all ranks have agreed on."""
        if decision.drain or must_save:
            self._save_now()
        elif not decision.writing:
            self._collect()
            if decision.snapshot:
                self.saving.begin()
            elif decision.copy:
                self.saving.begin_copy()
        elif decision.snapshot:
            self.saving.put_off()
        if decision.drain:
            raise Drained(self.progress.step)

    def _save_now(self) -> None:
        self._collect()
        self.saving.begin()
        self._collect()

    def _collect(self) -> None:
        result = self.saving.collect()
        if result is not None and result.objected:
            self._object(f"{result.problem} after step {result.step}")

    def _write_log(self) -> None:
        points = self.logbook.average(self.world)
        for point in points:
            reporter().measure(point)
        reporter().flush()
        self.saving.best.note(points)
        finding = first_non_finite_loss(points)
        if finding is not None:
            self._object(finding)

    def _object(self, finding: str) -> None:
        """Loss or weights are not finite, as all ranks find at the same step boundary."""
        if not self.non_finite.calls_for_rollback(finding):
            return
        self.saving.collect()
        restored = self.saving.snapshots.newest()
        self.non_finite.may_go_back_to(None if restored is None else restored.step, finding)
        if restored is not None:
            self._roll_back(restored, finding)

    def _roll_back(self, restored: Restored, finding: str) -> None:
        """The state of ``restored``, and the data that come next: those between are left out."""
        shared, progress = restored.shared_state, self.progress
        self.state.roll_back(
            shared,
            restored.rank_states,
            step=restored.step,
            same_world=restored.world_size == self.world.size,
            same_epoch=shared["progress"]["epoch"] == progress.epoch,
        )
        left_out, progress.step = progress.step - restored.step, restored.step
        reporter().place(step=restored.step)
        if self.world.rank == 0:
            place = f"back to the snapshot of step {restored.step}"
            reporter().warn(f"{finding}: {place}, without the data of the last {left_out} steps")
