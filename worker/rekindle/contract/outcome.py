"""How an attempt or a job ended."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from rekindle.contract.run_dir.json_records import JsonRecord, Line, Sentences


class OutcomeClass(StrEnum):
    """The kinds of ending that call for different actions."""

    SUCCESS = "success"  # every rank ended with exit code 0
    USER_ERROR = "user_error"  # the script raised, or ended without being done
    OOM = "oom"  # host or device memory ran out
    SIGNAL = "signal"  # a rank was killed by a signal
    HANG = "hang"  # no progress within the bound
    COMM = "comm"  # a collective failed and no rank has caused it
    NAN = "nan"  # loss or weights became non-finite
    DIVERGENCE = "divergence"  # ranks that should hold the same model do not
    DISK_FULL = "disk_full"  # no space left where the job must write
    PREEMPTED = "preempted"  # saved and stopped because it was asked to
    CANCELLED = "cancelled"  # stopped for good because it was asked to
    LAUNCH_ERROR = "launch_error"  # torchrun or the interpreter did not get as far as the script
    KEEPER_LOST = "keeper_lost"  # the keeper died; whatever the ranks did, nobody saw it
    HOST_LOST = "host_lost"  # the machine went down under the job


RESIZE_ENDINGS = frozenset({"resize", "grow"})
"""Values of ``evidence["ending"]`` of an attempt that was stopped for other devices (``keeper.attempt_result``)."""


class SavedProgress(StrEnum):
    """Whether an attempt saved something that the next one can resume from."""

    KNOWN = "known"  # a later step was committed, or the script saved a checkpoint of its own
    NONE = "none"  # it is known that nothing was
    UNKNOWN = "unknown"  # the script reports no snapshots, and no checkpoint of it was found


@dataclass(frozen=True, slots=True)
class Outcome(JsonRecord):
    """How an attempt ended: input of the retry policy, and the answer to "why?". Fields that do not apply are None."""

    keys: ClassVar = {"klass": "class"}
    klass: OutcomeClass
    message: Sentences  # one sentence a person understands
    rank: int | None = None
    exit_code: int | None = None
    signal: Line | None = None  # "SIGKILL"
    exception: Line | None = None  # "ValueError"
    file: str | None = None  # relative to the code directory where it lies in it
    line: int | None = None
    retryable: bool = True
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def is_resize(self) -> bool:
        """The attempt was stopped so that the next one has other devices: nothing had failed."""
        return self.klass is OutcomeClass.PREEMPTED and self.evidence.get("ending") in RESIZE_ENDINGS
