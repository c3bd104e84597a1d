"""Writing one snapshot: every rank its own files, then rank 0 the manifest and the commit."""

import errno
import pickle
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from rekindle.contract.files import read_json
from rekindle.contract.score import Score, best_step
from rekindle.training.manifest import (
    MODEL,
    BadSnapshotError,
    FileRecord,
    Manifest,
    read_owner,
    read_score,
    shard_file,
    verify,
    write_manifest,
)
from rekindle.training.memory_copy import claim_room, lack_of_room
from rekindle.training.plain_values import first_foreign
from rekindle.training.process_group import World
from rekindle.training.shards import Box, Place, boxes, flaw
from rekindle.training.snapshot_files import foreign_classes, read_state, write_state
from rekindle.training.snapshot_folder import SnapshotFolder

T = TypeVar("T")

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
_UNLOADABLE = (pickle.UnpicklingError, pickle.PicklingError, AttributeError, TypeError)


class _PeerLostError(Exception):
    """Another rank of the group has gone."""


class SnapshotError(RuntimeError):
    """Snapshots cannot be taken at all, whatever the disk says; raised on every rank."""


class StaleGenerationError(SnapshotError):
    """A newer attempt of the same job is under way: this one may not commit anything any more."""


def no_objection() -> str | None:
    """Every state may be kept."""
    return None


@dataclass(frozen=True, slots=True)
class SaveResult:
    """``problem`` is None where the snapshot is committed, else the reason why it is not; training may go on."""

    step: int
    problem: str | None = None
    objected: bool = False  # the problem is the state itself
    seconds: float = 0.0  # that writing took, as rank 0 saw it

    @property
    def saved(self) -> bool:
        return self.problem is None


@dataclass(frozen=True, slots=True)
class Staged:
    """What one rank is to write of a snapshot; nobody changes the states meanwhile.

    ``objection`` finds a reason why the state must not be kept (weights that are not finite, say).
    """

    step: int
    epoch: int | None
    files: dict[str, dict[Any, Any]]
    objection: Callable[[], str | None] = no_objection
    bytes: int = 0  # that the tensors take
    score: Score | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """What one rank has written of a snapshot."""

    files: dict[str, FileRecord] = field(default_factory=dict)
    objection: str | None = None
    problem: str | None = None  # this snapshot fails; the next may succeed
    error: str | None = None  # every snapshot would fail
    boxes: dict[Place, Box] | None = None  # of its shards, the first time that it has any


@dataclass(slots=True)
class SnapshotWriter:
    """One for each rank and folder. ``world`` must be used by nobody else while a snapshot is being written.

    ``fence`` is the file that names the one generation that may commit; None where there is no other.
    """

    world: World
    folder: SnapshotFolder
    job_id: str | None
    fence: Path | None
    keep: int
    in_memory: bool = False  # the folder lies in memory that the ranks share
    _proven: bool = False  # state like ours has been written and loaded again

    def write(self, staged: Staged) -> SaveResult:
        """Called by all ranks for the same step; on return it is committed, or the result says why not.

        Raises SnapshotError where the state could never be loaded again, StaleGenerationError where a newer attempt
        runs: both on every rank.
        """
        started = time.monotonic()
        try:
            lack = self._lack_of_room(staged.bytes) if self.in_memory else None
            parts = self._gather(self._write(staged) if lack is None else _Part(problem=lack))
            concluded = self._conclude(staged, parts, started) if self.world.rank == 0 else None
            result = self._broadcast(concluded)
        except _PeerLostError as error:  # so this attempt is over anyway
            return SaveResult(staged.step, f"another rank was lost meanwhile: {error}")
        if isinstance(result, SnapshotError):
            raise result
        if not isinstance(result, SaveResult):
            raise TypeError(f"rank 0 concluded {result!r}")
        return result

    def check_fence(self) -> None:
        """The keeper names the one generation that may commit; a zombie of an earlier one stops here."""
        if self.fence is None:
            return
        value = read_json(self.fence)
        current = value.get("generation") if isinstance(value, dict) else None
        if current != self.folder.generation:
            raise StaleGenerationError(
                f"generation {self.folder.generation} may not commit a snapshot: {self.fence} names {current}"
            )

    def check_owner(self) -> None:
        """Each job's retention deletes what it does not know: two of them in one folder would lose their snapshots."""
        for step in self.folder.steps():
            owner = read_owner(self.folder.path(step))
            if None not in (owner, self.job_id) and owner != self.job_id:
                raise SnapshotError(
                    f"{self.folder.root} holds snapshots of job {owner}, and this is job {self.job_id}: each job needs "
                    "a folder of its own. To begin with the weights of that one, export them with `python -m "
                    f"rekindle.training.export {self.folder.path(step)} weights.pt`, and give start_from='weights.pt'"
                )

    def scores(self) -> dict[int, Score]:
        """Of the snapshots in the folder that have one, by step."""
        found = {step: read_score(self.folder.path(step)) for step in self.folder.steps()}
        return {step: score for step, score in found.items() if score is not None}

    def _gather(self, value: T) -> list[T]:
        try:
            return self.world.gather(value)
        except RuntimeError as error:
            raise _PeerLostError(str(error)) from error

    def _broadcast(self, value: T) -> T:
        try:
            return self.world.broadcast(value)
        except RuntimeError as error:
            raise _PeerLostError(str(error)) from error

    def _lack_of_room(self, wanted: int) -> str | None:
        """Asked by all ranks before any has written, since what is free must be enough for all of them."""
        root = self.folder.root
        return lack_of_room(root, self._gather(claim_room(root, wanted)))

    def _write(self, staged: Staged) -> _Part:
        """Write this rank's files, durably; asks nobody, and raises nothing, since the other ranks wait for it."""
        try:
            objection = staged.objection()
            return self._write_files(staged) if objection is None else _Part(objection=objection)
        except OSError as error:
            return _Part(problem=_disk_problem(error))
        except Exception as error:  # noqa: BLE001  # it must be told, whatever it is
            return _Part(problem=f"on rank {self.world.rank}, {_unforeseen(error)}")

    def _write_files(self, staged: Staged) -> _Part:
        """What can be loaded at first may change for the worse, so a look is taken at all that is written."""
        folder, shards = self.folder.temporary(staged.step), staged.files.get(shard_file(self.world.rank))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            files = {name: write_state(folder / name, state) for name, state in staged.files.items()}
            why = next(
                (why for name in files if (why := _foreign(folder / name, staged.files[name])) is not None), None
            )
            if why is None and not self._proven:
                for name in files:
                    read_state(folder / name)
        except _UNLOADABLE as error:
            why = unloadable_part(error)
        if why is not None:
            refusal = f"the state of rank {self.world.rank} cannot be saved and loaded safely: {why}"
            return _Part(problem=refusal) if self._proven else _Part(error=refusal)
        first_boxes = boxes(shards) if shards is not None and not self._proven else None
        self._proven = True
        return _Part(files, boxes=first_boxes)

    def _conclude(self, staged: Staged, parts: list[_Part], started: float) -> SaveResult | SnapshotError:
        """Commit what all ranks have written, or clear it away. Rank 0 only."""
        errors = [part.error for part in parts if part.error is not None]
        validate = [part.objection for part in parts if part.objection is not None]
        problems = validate + [part.problem for part in parts if part.problem is not None]
        try:
            if errors:
                raise SnapshotError(f"{errors[0]}; put only tensors, numbers, text, lists and dicts into a state")
            if (fault := _shard_fault(staged, parts)) is not None:
                raise SnapshotError(f"the shared state cannot be put together again: {fault}")
            if not problems:
                self.check_owner()
                self._commit(staged, parts)
                return SaveResult(staged.step, seconds=time.monotonic() - started)
        except SnapshotError as error:
            self.folder.discard(staged.step)
            return error
        except OSError as error:
            problems = [_disk_problem(error)]
        except BadSnapshotError as error:
            problems = [f"read back after writing, {error}"]
        except Exception as error:  # noqa: BLE001  # the other ranks wait for a conclusion, whatever it is
            problems = [_unforeseen(error)]
        self.folder.discard(staged.step)
        return SaveResult(staged.step, problems[0], bool(validate), time.monotonic() - started)

    def _commit(self, staged: Staged, parts: list[_Part]) -> None:
        """Marker last, read back, rename, and only then delete old ones."""
        folder = self.folder.temporary(staged.step)
        manifest = Manifest(
            job_id=self.job_id,
            step=staged.step,
            epoch=staged.epoch,
            world_size=self.world.size,
            created_at=time.time(),
            generation=self.folder.generation,
            torch=torch.__version__,
            files={name: record for part in parts for name, record in part.files.items()},
            score=staged.score,
        )
        write_manifest(folder, manifest)
        verify(folder, step=staged.step, job_id=self.job_id)
        self.check_fence()
        self.folder.publish(staged.step)
        with suppress(OSError):  # what cannot be deleted now is tried again after the next snapshot
            self.folder.retire(self.keep, best_step(self.scores()))
            self.folder.sweep()


def _shard_fault(staged: Staged, parts: list[_Part]) -> str | None:
    saved = [part.boxes for part in parts if part.boxes is not None]
    return flaw(staged.files[MODEL], saved) if saved else None


def _foreign(path: Path, state: dict[Any, Any]) -> str | None:
    """What in ``state``, as it was written to ``path``, would not be loaded again; None where there is nothing."""
    names = foreign_classes(path)
    return (first_foreign(state) or f"it holds a {names[0]}") if names else None


def unloadable_part(error: Exception) -> str:
    """The heart of torch's long message: the class that it would have to trust."""
    found = re.search(r"GLOBAL ([\w.]+)", str(error))
    return f"it holds a {found[1]}" if found else str(error).partition("\n")[0]


def _unforeseen(error: Exception) -> str:
    return f"an unforeseen error: {type(error).__name__}: {error}"


def _disk_problem(error: OSError) -> str:
    reason = "the disk takes no more: " if error.errno in _DISK_FULL else ""
    return f"{reason}{error}"
