"""What an attempt's script does although it reports nothing: checkpoints written, loaded and torn, progress printed."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import TargetKind
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.script_files import shown_path
from rekindle.keeper.attempt_result import AttemptResult, Ending
from rekindle.keeper.observers.checkpoints import CheckpointTracker, move_torn
from rekindle.keeper.observers.planned_length import planned_length
from rekindle.keeper.observers.printed_output import PrintedOutput


class ScriptObserver:
    """Observes the script of one attempt. Make it before the ranks start and after those before are gone."""

    def __init__(
        self,
        run_dir: RunDir,
        attempt: int,
        spec: JobSpec,
        record: Callable[..., Any],
        ranks: Collection[int],
    ) -> None:
        """``record`` writes to the journal of the attempt."""
        self._record = record
        for checkpoint, target, restored in move_torn(run_dir, spec.watch):
            paths = {"path": shown_path(checkpoint.path, run_dir.code), "moved_to": shown_path(target, run_dir.code)}
            record(RecordType.CHECKPOINT_TORN, **paths, written_by=checkpoint.attempt, restored=restored)
        self._tracker = CheckpointTracker(run_dir, attempt, spec.watch)
        script = run_dir.code / spec.target if spec.kind is TargetKind.SCRIPT else None
        length = planned_length(spec.args, script)
        self._printed = PrintedOutput(run_dir.attempt(attempt), ranks, length, copies=spec.printed_metrics)
        self._loaded: str | None = None

    @property
    def has_saved(self) -> bool:
        """True where the script has completed a checkpoint in this attempt, as far as was observed."""
        return self._tracker.saved is True

    def observe_if_due(self) -> None:
        self._printed.read_if_due()
        self._set_estimates()
        self._tracker.scan_if_due()
        self._record_loaded()

    def finish(self, result: AttemptResult) -> None:
        """Add to ``result`` what the script has saved and loaded by itself, once the ranks are gone."""
        self._printed.read(ended=True)
        if result.ending is Ending.DONE:
            self._printed.complete()
        self._set_estimates()
        self._tracker.finish()
        self._record_loaded()
        result.own_checkpoint_saved, result.own_checkpoint_loaded = self._tracker.saved, self._tracker.loaded

    def _set_estimates(self) -> None:
        printed = self._printed
        self._tracker.set_estimates(printed.step, printed.epoch, printed.progress, printed.seconds_left)

    def _record_loaded(self) -> None:
        path = self._tracker.resumed_from_path
        if path is not None and path != self._loaded:
            self._loaded = path
            self._record(RecordType.CHECKPOINT_LOADED, path=path)


def add_checkpoints_of_lost(result: AttemptResult, run_dir: RunDir, watch: Sequence[str]) -> None:
    """Do what ``ScriptObserver.finish`` does for an attempt that ended together with its keeper."""
    tracker = CheckpointTracker(run_dir, result.attempt, watch, lost=True)
    tracker.finish()
    result.own_checkpoint_saved, result.own_checkpoint_loaded = tracker.saved, tracker.loaded
