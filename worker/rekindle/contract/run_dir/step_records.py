"""What a rank writes in ``steps.json``: where the time of its latest sampled steps is spent."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from rekindle.contract.run_dir.json_records import Amount, Count, JsonRecord, Range


class StepPhase(StrEnum):
    """What the time of a step is spent on, in the order of a step."""

    DATA = "data"  # waiting for the data loader
    COPY = "copy"  # from the batch to the first layer, where a GPU computes: above all, copying the batch
    FORWARD = "forward"  # and the loss
    BACKWARD = "backward"
    COMMUNICATION = "communication"  # waiting for other ranks or for a transfer; what runs beside backward is not in it
    OPTIMIZER = "optimizer"
    SAVING = "saving"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class StepSample(JsonRecord):
    """One sampled step."""

    step: Count  # counted from the first one of the attempt; ranks in lockstep sample the same ones
    ended: Amount  # seconds since the first one that counts
    saving: Amount  # seconds of all saving from then until its end
    seconds: dict[str, Amount]  # by ``StepPhase``; those that took none are missing
    elements: Count | None = None  # in the tensors of its batches; None where no loader has loaded any


@dataclass(frozen=True, slots=True)
class StepSamples(JsonRecord):
    """Content of ``steps.json``: the latest samples, oldest first, and totals since the first step that counts."""

    steps: Count
    seconds: Amount
    saving: Amount  # seconds in which the training waited for saving
    saves: Count
    cores: Annotated[int, Range(1, 1 << 20)]  # that the rank may use
    workers: Count | None = None  # of the data loader that was used last
    samples: list[StepSample] = field(default_factory=list)
