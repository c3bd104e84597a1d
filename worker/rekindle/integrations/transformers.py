"""Hugging Face Trainer: ``callbacks=[RekindleCallback()]``, ``train(resume_from_checkpoint=latest_checkpoint())``."""

from typing import Any

from transformers import TrainerCallback
from transformers.integrations import rewrite_logs

from rekindle.contract.files import read_json
from rekindle.integrations.framework_steps import FrameworkSteps, latest_own_checkpoint


def latest_checkpoint() -> str | None:
    """Path of the job's latest whole checkpoint of Trainer; None outside rekindle."""
    return latest_own_checkpoint(lambda path: read_json(path / "trainer_state.json") is not None)  # written last


class RekindleCallback(TrainerCallback):
    """Reports steps and metrics, and saves and stops at a step when drained. Does nothing outside rekindle."""

    def __init__(self) -> None:
        self._steps = FrameworkSteps()
        self._leaves = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._steps.join(state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._steps.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save when drained; where an evaluation or the end of an epoch follows, the ranks leave a step later."""
        pauses = control.should_evaluate or state.epoch.is_integer() or state.global_step >= state.max_steps
        progress = {"epoch": int(state.epoch), "epochs": state.num_train_epochs, "steps": state.max_steps}
        if self._steps.end(state.global_step, pauses=pauses, **progress):
            control.should_save, self._leaves = True, not pauses

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._leaves:
            self._steps.leave(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self._steps.log(state.global_step, rewrite_logs(logs))  # the names that trackers have

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._steps.finish()
