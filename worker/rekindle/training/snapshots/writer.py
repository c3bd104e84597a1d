"""Writing one snapshot: every rank its own files, then rank 0 the manifest and the commit."""

import errno
import os
import pickle
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from rekindle.contract.files import read_json
from rekindle.contract.run_dir.snapshot_dir import (
    MODEL,
    BadSnapshotError,
    Manifest,
    SnapshotFile,
    SnapshotScore,
    best_step,
    shard_file,
)
from rekindle.training.process_group import World
from rekindle.training.snapshots.directory import CACHE_TIMEOUT, SnapshotStorage, make_directory, verify, write_manifest
from rekindle.training.snapshots.dtensor_io import KeyPath, ShardSlice, check_coverage, slices_of
from rekindle.training.snapshots.replicas import WeightSample, differing_ranks
from rekindle.training.snapshots.shared_memory import check_free_space, request_space
from rekindle.training.snapshots.state_files import find_unsafe, read_state, write_state

T = TypeVar("T")
R = TypeVar("R")

RESERVED_BYTES = 100 << 20  # as the server needs to accept jobs
RESERVED_SHARE = 50  # of a small disk, if that is less
_FENCE_INTERVAL = 0.1  # seconds between two looks at a fence that may be seen late
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
_UNLOADABLE = (pickle.UnpicklingError, pickle.PicklingError, AttributeError, TypeError)


class PeerLostError(Exception):
    """Raised where another rank of the group is gone."""


class SnapshotError(RuntimeError):
    """Raised on every rank where snapshots cannot be taken at all, whatever the disk allows."""


class StaleGenerationError(SnapshotError):
    """Raised where a newer attempt of the same job has started: this one may not commit anything any more."""


@dataclass(frozen=True, slots=True)
class SaveResult:
    """How a save ended: ``problem`` is None where the snapshot is committed, else the reason why it is not."""

    step: int
    problem: str | None = None
    invalid: bool = False  # the problem is the state itself
    seconds: float = 0.0  # that writing took, as rank 0 measured it
    differing: tuple[int, ...] = ()  # ranks whose weights are not those of rank 0, which are saved

    @property
    def saved(self) -> bool:
        return self.problem is None


@dataclass(frozen=True, slots=True)
class Staged:
    """What one rank is to write of a snapshot; nobody changes the states meanwhile.

    ``validate`` finds a reason why the state must not be kept (weights that are not finite, say).
    """

    step: int
    epoch: int | None
    files: dict[str, dict[Any, Any]]
    validate: Callable[[], str | None]
    bytes: int  # that the tensors take
    score: SnapshotScore | None
    sample: WeightSample | None = None  # of this rank's weights, where every rank should have the same


@dataclass(frozen=True, slots=True)
class RankWrite:
    """What one rank has written of a snapshot."""

    files: dict[str, SnapshotFile] = field(default_factory=dict)
    invalid: str | None = None  # the reason by ``Staged.validate``
    problem: str | None = None  # this snapshot fails; the next may succeed
    error: str | None = None  # every snapshot would fail
    slices: dict[KeyPath, ShardSlice] | None = None  # of its shards, the first time that it has any
    sample: WeightSample | None = None


@dataclass(slots=True)
class SnapshotWriter:
    """Writes the snapshots of one rank to one directory.

    ``world`` must be used by nobody else while a snapshot is being written.

    ``fence`` is the file that names the one generation that may commit; None where there is no other.
    """

    world: World
    storage: SnapshotStorage
    job_id: str | None
    fence: Path | None
    keep_last: int
    in_shm: bool = False  # the directory is in memory that the ranks share
    _proven: bool = False  # state like ours has been written and loaded again

    def write(self, staged: Staged) -> SaveResult:
        """Write and commit ``staged``, or return the reason why not. All ranks call it for the same step.

        Raises SnapshotError where the state could never be loaded again, StaleGenerationError where a newer attempt
        runs: both on every rank.
        """
        try:
            result = self._write_and_commit(staged)
        except PeerLostError as error:  # so this attempt is over anyway
            return SaveResult(staged.step, f"another rank was lost meanwhile: {error}")
        if isinstance(result, SnapshotError):
            raise result
        return cast("SaveResult", result)

    def _write_and_commit(self, staged: Staged) -> SaveResult | SnapshotError | None:
        """Write, gather what all ranks have written, and let rank 0 commit. Raises PeerLostError."""
        started = time.monotonic()
        lack = self._lack_of_space(staged.bytes) if self.in_shm else None
        own = self._write(staged) if lack is None else RankWrite(problem=lack)
        writes = collective(self.world.gather, own)
        concluded = self._commit_or_discard(staged, writes, started) if self.world.rank == 0 else None
        return collective(self.world.broadcast, concluded)

    def check_fence(self) -> None:
        """Refuse to commit for an earlier generation than the one that the keeper names: StaleGenerationError.

        What the keeper of another machine has written may be seen late.
        """
        deadline = time.monotonic() + self._cache_timeout
        while self.fence is not None:
            value = read_json(self.fence)
            current = value.get("generation") if isinstance(value, dict) else None
            if current == self.storage.generation:
                return
            if _attempt_of(current) >= _attempt_of(self.storage.generation) or time.monotonic() > deadline:
                raise StaleGenerationError(
                    f"generation {self.storage.generation} may not commit a snapshot: {self.fence} names {current}"
                )
            time.sleep(_FENCE_INTERVAL)

    def check_owner(self) -> None:
        """Refuse a directory of another job: each would prune the snapshots of the other."""
        for step in self.storage.steps():
            manifest = self.storage.manifest(step)
            owner = None if manifest is None else manifest.job_id
            if None not in (owner, self.job_id) and owner != self.job_id:
                raise SnapshotError(
                    f"{self.storage.root} holds snapshots of job {owner}, and this is job {self.job_id}: each job "
                    "needs a directory of its own. To start from the weights of that one, export them with `python -m "
                    f"rekindle.training.export {self.storage.path(step)} weights.pt`, and use start_from='weights.pt'"
                )

    def _lack_of_space(self, size: int) -> str | None:
        """Explain a lack of space. All ranks call it before any has written: the space must be enough for all."""
        root = self.storage.root
        return check_free_space(root, collective(self.world.gather, request_space(root, size)))

    @property
    def _cache_timeout(self) -> float:
        return CACHE_TIMEOUT if self.world.spans_machines else 0.0

    def _write(self, staged: Staged) -> RankWrite:
        """Write this rank's files, durably. Neither communicates nor raises, since the other ranks wait for it."""
        try:
            invalid = staged.validate()
            return self._write_files(staged) if invalid is None else RankWrite(invalid=invalid)
        except OSError as error:
            return RankWrite(problem=_disk_problem(error))
        except Exception as error:  # noqa: BLE001  # it must be reported, whatever it is
            return RankWrite(problem=f"on rank {self.world.rank}, {_unexpected(error)}")

    def _leave_space_for_others(self, directory: Path, size: int) -> None:
        """Refuse a snapshot that would take the last of the disk from journals and the database of the service.

        Raises OSError.
        """
        if self.fence is None or self.in_shm or directory.stat().st_dev != self.fence.parent.stat().st_dev:
            return
        disk = os.statvfs(directory)
        reserve = min(RESERVED_BYTES, disk.f_blocks * disk.f_frsize // RESERVED_SHARE)
        free = disk.f_bavail * disk.f_frsize
        if free < size + reserve:
            reason = f"{free >> 20} MB are free, and {size >> 20} MB of it would leave less than {reserve >> 20} MB"
            raise OSError(errno.ENOSPC, reason)

    def _write_files(self, staged: Staged) -> RankWrite:
        """Write and check each file: a state that could be loaded at first may change for the worse."""
        directory, shards = self.storage.temporary(staged.step), staged.files.get(shard_file(self.world.rank))
        make_directory(directory, self._cache_timeout)
        self._leave_space_for_others(directory, staged.bytes)
        try:
            files = {name: write_state(directory / name, state) for name, state in staged.files.items()}
            reasons = (_unsafe(directory / name, staged.files[name]) for name in files)
            unsafe = next((reason for reason in reasons if reason is not None), None)
            if unsafe is None and not self._proven:
                for name in files:
                    read_state(directory / name)
        except _UNLOADABLE as error:
            unsafe = unloadable_part(error)
        if unsafe is not None:
            refusal = f"the state of rank {self.world.rank} cannot be saved and loaded safely: {unsafe}"
            return RankWrite(problem=refusal) if self._proven else RankWrite(error=refusal)
        first_slices = slices_of(shards) if shards is not None and not self._proven else None
        self._proven = True
        return RankWrite(files, slices=first_slices, sample=staged.sample)

    def _commit_or_discard(self, staged: Staged, writes: list[RankWrite], started: float) -> SaveResult | SnapshotError:
        """Commit what all ranks have written, or delete it. Rank 0 only."""
        errors = [each.error for each in writes if each.error is not None]
        invalid = [each.invalid for each in writes if each.invalid is not None]
        problems = invalid + [each.problem for each in writes if each.problem is not None]
        try:
            if errors:
                raise SnapshotError(f"{errors[0]}; put only tensors, numbers, text, lists and dicts into a state")
            slices = [each.slices for each in writes if each.slices is not None]
            if slices and (gap := check_coverage(staged.files[MODEL], slices)) is not None:
                raise SnapshotError(f"the shared state could not be restored: {gap}")
            if not problems:
                self.check_owner()
                self._commit(staged, writes)
                differing = tuple(differing_ranks([each.sample for each in writes]))
                return SaveResult(staged.step, seconds=time.monotonic() - started, differing=differing)
        except SnapshotError as error:
            self.storage.discard(staged.step)
            return error
        except OSError as error:
            problems = [_disk_problem(error)]
        except BadSnapshotError as error:
            problems = [f"read back after writing, {error}"]
        except Exception as error:  # noqa: BLE001  # the other ranks wait for a conclusion, whatever it is
            problems = [_unexpected(error)]
        self.storage.discard(staged.step)
        return SaveResult(staged.step, problems[0], bool(invalid), time.monotonic() - started)

    def _commit(self, staged: Staged, writes: list[RankWrite]) -> None:
        """Write the manifest last, read all back, rename, and only then delete old snapshots."""
        directory = self.storage.temporary(staged.step)
        write_manifest(directory, self._manifest(staged, writes))
        verify(directory, step=staged.step, job_id=self.job_id, timeout=self._cache_timeout)
        self.check_fence()
        self.storage.publish(staged.step)
        with suppress(OSError):  # what cannot be deleted now is tried again after the next snapshot
            self.storage.prune(self.keep_last, best_step(self.storage.scores()))
            self.storage.clean_leftovers()

    def _manifest(self, staged: Staged, writes: list[RankWrite]) -> Manifest:
        return Manifest(
            job_id=self.job_id,
            step=staged.step,
            epoch=staged.epoch,
            world_size=self.world.size,
            created_at=time.time(),
            generation=self.storage.generation,
            torch=torch.__version__,
            files={name: record for each in writes for name, record in each.files.items()},
            score=staged.score,
        )


def collective(call: Callable[[T], R], value: T) -> R:
    """Call a collective operation; raises PeerLostError where another rank does not answer."""
    try:
        return call(value)
    except RuntimeError as error:
        raise PeerLostError(str(error)) from error


def _unsafe(path: Path, state: dict[Any, Any]) -> str | None:
    """Find what in ``state``, as it was written to ``path``, could not be loaded again; None where there is nothing."""
    names = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))  # takes 1 ms: no tensor is read
    return (find_unsafe(state) or f"it holds a {names[0]}") if names else None


def unloadable_part(error: Exception) -> str:
    """Shorten torch's long message to the class that it would have to trust."""
    found = re.search(r"GLOBAL ([\w.]+)", str(error))
    return f"it holds a {found[1]}" if found else str(error).partition("\n")[0]


def _unexpected(error: Exception) -> str:
    return f"an unexpected error: {type(error).__name__}: {error}"


def _disk_problem(error: OSError) -> str:
    reason = "the disk is full or read-only: " if error.errno in _DISK_FULL else ""
    return f"{reason}{error}"


def _attempt_of(generation: object) -> int:
    """Read the number with which ``generation`` begins; -1 where there is none."""
    number = str(generation).partition("-")[0]
    return int(number) if number.isdecimal() else -1
