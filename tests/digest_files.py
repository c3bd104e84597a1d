"""Files of digests as ranks leave them, for tests without processes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rekindle.contract.run_dir.attempt_history import AttemptSummary
from rekindle.contract.run_dir.digest_records import DigestNames, StepDigest, TensorKind, hexadecimal, pack
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.run_readers.digest_series import DigestSeries

NAMES = DigestNames(["fc.weight", "fc.bias"], ["momentum fc.weight", "momentum fc.bias"], ["bn.mean"])


@dataclass(frozen=True)
class DigestWriter:
    """Writes what a training of ``ranks`` replicas leaves; every digest follows from the step, and the rank."""

    run_dir: RunDir
    ranks: int = 2
    attempt: int = 1
    names: DigestNames = NAMES
    sharded: bool = False

    def record(self, step: int, rank: int) -> StepDigest:
        own = rank * 1000 if self.sharded else 0
        kinds = TensorKind if rank == 0 or self.sharded else (TensorKind.BUFFERS,)
        return StepDigest(
            step=step,
            epoch=0,
            samples=[step * 8, step * 8 + 8],
            order=hexadecimal(step),
            batch=hexadecimal(step * 10 + rank),
            random=hexadecimal(step * 20 + rank),
            parts=hexadecimal(7),
            logged={"loss": (1.0 / (step + 1)).hex()},
            tensors={kind: pack(self._digests(kind, step + own, rank)) for kind in kinds},
        )

    def _digests(self, kind: TensorKind, base: int, rank: int) -> list[int]:
        shift = rank if kind is TensorKind.BUFFERS else 0
        return [base * 100 + index + shift for index in range(len(self.names.of(kind)))]

    def write(self, steps: Sequence[int], changed: Mapping[tuple[int, int], StepDigest] | None = None) -> None:
        """Append the records of all ranks; ``changed`` has other ones by step and rank."""
        for rank in range(self.ranks):
            records = [(changed or {}).get((step, rank)) or self.record(step, rank) for step in steps]
            self.append(rank, json.dumps(self.names.to_json()), *(json.dumps(each.to_json()) for each in records))

    def append(self, rank: int, *lines: str) -> None:
        path = self.run_dir.attempt(self.attempt).rank(rank).digests
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def later(self, step: int, rank: int, **fields: object) -> dict[tuple[int, int], StepDigest]:
        """The record of a rank with other values of these fields."""
        return {(step, rank): replace(self.record(step, rank), **fields)}  # type: ignore[arg-type]

    def tensors(self, step: int, rank: int, kind: TensorKind, *indices: int) -> dict[tuple[int, int], StepDigest]:
        """The record of a rank in which these tensors of a kind have other digests."""
        digests = self._digests(kind, step, rank)
        changed = pack([-each if index in indices else each for index, each in enumerate(digests)])
        return self.later(step, rank, tensors={**self.record(step, rank).tensors, kind: changed})


def series(run_dir: RunDir, *world_sizes: int) -> DigestSeries:
    """The digests of a job whose attempts had these numbers of ranks."""
    return DigestSeries(run_dir, [AttemptSummary(n, world_size=size) for n, size in enumerate(world_sizes, 1)])
