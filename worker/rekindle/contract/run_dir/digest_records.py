"""What a rank writes in ``digests.jsonl``: from which step on two trainings, or two replicas, are not the same.

Two kinds of lines: ``DigestNames`` before the first digest, and again where the tensors have changed, and a
``StepDigest`` for each step of which there is one. Digests are 64-bit numbers: 16 hexadecimal digits of one, or
``pack``ed, one for each name.
"""

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rekindle.contract.field_texts import Described
from rekindle.contract.run_dir.json_records import Count, JsonRecord, Line


class TensorKind(StrEnum):
    """What tensors a digest is of, in the order of a step."""

    GRADIENTS = "gradients"  # as the optimizer found them: averaged over the ranks
    PARAMETERS = "parameters"  # after the step, as all below
    OPTIMIZER = "optimizer"  # its state, as in "momentum_buffer layer1.weight"
    BUFFERS = "buffers"  # of the model on rank 0: those of batch normalization differ among ranks


@dataclass(frozen=True, slots=True)
class DigestNames(JsonRecord):
    """The names of the tensors in the lines that follow; gradients have those of the parameters."""

    parameters: list[Line]
    optimizer: list[Line]
    buffers: list[Line]

    def of(self, kind: TensorKind) -> list[str]:
        return {
            TensorKind.OPTIMIZER: self.optimizer,
            TensorKind.BUFFERS: self.buffers,
        }.get(kind, self.parameters)


@dataclass(frozen=True, slots=True)
class StepDigest(JsonRecord):
    """What one rank was after ``step``, and what it has used for it.

    ``tensors`` are packed digests by ``TensorKind``; a kind that is missing is that of rank 0, with which the ranks
    have compared it, unless this is rank 0: then the step had none, as without a step of the optimizer. Buffers are
    recorded by rank 0 alone, since a snapshot has only its.
    """

    step: Count
    epoch: Count
    samples: list[Count]  # begin and end in the order of the epoch: the samples of all ranks together
    order: Line  # digest of the indices of these samples, 16 hexadecimal digits, as all below
    batch: Line | None = None  # of the tensors in this rank's batch
    random: Line | None = None  # of the states of its random number generators
    parts: Line | None = None  # of the states of scheduler and scaler
    logged: dict[str, Line] = field(default_factory=dict)  # by name, the values of this rank as ``float.hex``
    tensors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LayerRecord(Described):
    """One tensor of a recorded step."""

    phase: Line
    """`batch`, `forward` (output of a layer), `backward` (gradient of that output), `gradient` or `parameter` (after
    the step)."""
    name: Line
    """Name of the layer or parameter."""
    shape: list[Count]
    """Size in each dimension."""
    low: float | None
    """Lowest finite value; null where there is none."""
    high: float | None
    """Highest finite value; null where there is none."""
    norm: float
    """Euclidean norm of the finite values."""
    not_finite: Count
    """Number of values that are infinite or NaN."""
    digest: Line
    """64-bit digest of the bits, as 16 hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class StepRecord(JsonRecord):
    """Content of ``layers.json``: what one rank has computed in ``step``; ``samples`` are indices in the data set."""

    step: Count
    samples: list[Count]
    tensors: list[LayerRecord]


def pack(digests: Sequence[int]) -> str:
    """Pack 64-bit numbers, signed or not, as text."""
    words = [digest & 0xFFFF_FFFF_FFFF_FFFF for digest in digests]
    return base64.b64encode(struct.pack(f"<{len(words)}Q", *words)).decode()


def unpack(text: str) -> list[int]:
    """Undo ``pack``. Raises ValueError for anything else."""
    try:
        packed = base64.b64decode(text, validate=True)
        return list(struct.unpack(f"<{len(packed) // 8}Q", packed))
    except (ValueError, struct.error) as error:
        raise ValueError(f"not packed digests: {error}") from error


def hexadecimal(digest: int) -> str:
    """The 16 digits of a 64-bit number."""
    return f"{digest & 0xFFFF_FFFF_FFFF_FFFF:016x}"
