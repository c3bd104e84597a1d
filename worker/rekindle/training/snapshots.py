"""Taking and restoring snapshots: whole, checked, and committed by one generation only."""

import errno
import os
import pickle
import re
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rekindle.contract.durable import read_json
from rekindle.contract.environ import RankEnv
from rekindle.training.manifest import (
    MODEL,
    BadSnapshotError,
    FileRecord,
    Manifest,
    rank_file,
    verify,
    write_manifest,
)
from rekindle.training.process_group import World, joined_world
from rekindle.training.reporting import reporter
from rekindle.training.snapshot_files import read_state, write_state
from rekindle.training.snapshot_folder import SnapshotFolder

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
_UNLOADABLE = (pickle.UnpicklingError, pickle.PicklingError, AttributeError, TypeError)


class SnapshotError(RuntimeError):
    """Snapshots cannot be taken at all, whatever the disk says; raised on every rank."""


class StaleGenerationError(SnapshotError):
    """A newer attempt of the same job is under way: this one may not commit anything any more."""


@dataclass(frozen=True, slots=True)
class SaveResult:
    """``problem`` is None where the snapshot is on disk, else the reason why it is not; training may go on."""

    step: int
    problem: str | None = None

    @property
    def saved(self) -> bool:
        return self.problem is None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A snapshot that failed its checks and was put into quarantine."""

    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class Restored:
    """A snapshot as this rank takes it up.

    ``rank_states`` are those of the former ranks that this rank stands for: its own where the world size is the same;
    one, several or none where it is not.
    """

    step: int
    epoch: int | None
    world_size: int
    shared_state: dict[str, Any]
    rank_states: list[dict[str, Any]]
    skipped: list[Skipped]


@dataclass(frozen=True, slots=True)
class _Part:
    """What one rank has written of a snapshot."""

    files: dict[str, FileRecord]
    problem: str | None = None  # this snapshot fails; the next may succeed
    error: str | None = None  # every snapshot would fail


class Snapshots:
    """The snapshots of one training, shared by all its ranks.

    Every method is called by all ranks at the same step. ``directory`` must be the same folder for all; left out, it
    is the job's own under rekindle, and ``snapshots`` in the working directory under plain torchrun.
    """

    def __init__(self, directory: str | Path | None = None, *, keep: int = 3, world: World | None = None) -> None:
        env = RankEnv.read(os.environ)
        self._world = world if world is not None else joined_world(env)
        self._job_id, self._keep = env.job_id, keep
        fenced = env.run_dir is not None and env.generation is not None
        self._fence = env.run_dir.fence if fenced and env.run_dir is not None else None
        generation = self._world.broadcast(env.generation or secrets.token_hex(4))
        self._folder = SnapshotFolder(Path(directory or env.snapshot_dir or "snapshots"), generation)
        self._proven = False  # state like ours has been written and loaded again
        self._complaint = ""  # the notice of the last failure

    def save(
        self,
        step: int,
        epoch: int | None,
        shared_state: dict[str, Any],
        rank_state: dict[str, Any],
        *,
        objection: str | None = None,
    ) -> SaveResult:
        """Take the snapshot of ``step``; on return it is on disk, checked, or the result says why not.

        ``shared_state`` is taken from rank 0; states may hold tensors, numbers, text, lists and dicts. A rank with an
        ``objection`` (weights that are not finite, say) keeps this snapshot from being committed.

        Raises SnapshotError where the state could never be loaded again, StaleGenerationError where a newer attempt
        runs: both on every rank.
        """
        part = _Part({}, objection) if objection else self._write(step, self._stage(shared_state, rank_state))
        parts = self._world.gather(part)
        result = self._world.broadcast(self._conclude(step, epoch, parts) if self._world.rank == 0 else None)
        if isinstance(result, SnapshotError):
            raise result
        if not isinstance(result, SaveResult):
            raise TypeError(f"rank 0 concluded {result!r}")
        self._tell(result)
        return result

    def restore(self) -> Restored | None:
        """The newest snapshot that passes all checks, or None where there is none.

        One that does not pass is put into quarantine, with a notice, and the one before it is tried. Raises
        StaleGenerationError where a newer attempt runs.
        """
        chosen = self._world.broadcast(self._choose() if self._world.rank == 0 else None)
        if isinstance(chosen, SnapshotError):
            raise chosen
        manifest, skipped = chosen if chosen is not None else (None, [])
        if self._world.rank == 0:
            for each in skipped:
                reporter().warn(f"snapshot {each.step} skipped: {each.reason}")
        if manifest is None:
            return None
        folder = self._folder.path(manifest.step)
        former = range(self._world.rank, manifest.world_size, self._world.size)
        restored = Restored(
            step=manifest.step,
            epoch=manifest.epoch,
            world_size=manifest.world_size,
            shared_state=read_state(folder / MODEL),
            rank_states=[read_state(folder / rank_file(rank)) for rank in former],
            skipped=skipped,
        )
        reporter().resumed(manifest.step)
        return restored

    def _stage(self, shared_state: dict[str, Any], rank_state: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Which file of this rank holds what."""
        staged = {rank_file(self._world.rank): rank_state}
        if self._world.rank == 0:
            staged[MODEL] = shared_state
        return staged

    def _write(self, step: int, staged: dict[str, dict[str, Any]]) -> _Part:
        """Write this rank's files, durably; asks nobody."""
        folder = self._folder.temporary(step)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            files = {name: write_state(folder / name, state) for name, state in staged.items()}
            if not self._proven:
                for name in files:
                    read_state(folder / name)
                self._proven = True
        except OSError as error:
            return _Part({}, _disk_problem(error))
        except _UNLOADABLE as error:
            why = _unloadable(error)
            return _Part({}, error=f"the state of rank {self._world.rank} cannot be saved and loaded safely: {why}")
        return _Part(files)

    def _conclude(self, step: int, epoch: int | None, parts: list[_Part]) -> SaveResult | SnapshotError:
        """Commit what all ranks have written, or clear it away. Rank 0 only."""
        errors = [part.error for part in parts if part.error is not None]
        problems = [part.problem for part in parts if part.problem is not None]
        try:
            if errors:
                raise SnapshotError(f"{errors[0]}; put only tensors, numbers, text, lists and dicts into a state")
            if not problems:
                self._commit(step, epoch, parts)
                return SaveResult(step)
        except SnapshotError as error:
            self._folder.discard(step)
            return error
        except OSError as error:
            problems = [_disk_problem(error)]
        except BadSnapshotError as error:
            problems = [f"read back after writing, {error}"]
        self._folder.discard(step)
        return SaveResult(step, problems[0])

    def _commit(self, step: int, epoch: int | None, parts: list[_Part]) -> None:
        """Marker last, read back, rename, and only then delete old ones."""
        folder = self._folder.temporary(step)
        manifest = Manifest(
            job_id=self._job_id,
            step=step,
            epoch=epoch,
            world_size=self._world.size,
            created_at=time.time(),
            generation=self._folder.generation,
            torch=torch.__version__,
            files={name: record for part in parts for name, record in part.files.items()},
        )
        write_manifest(folder, manifest)
        verify(folder, step=step, job_id=self._job_id)
        self._check_fence()
        self._folder.publish(step)
        with suppress(OSError):  # what cannot be deleted now is tried again after the next snapshot
            self._folder.retire(self._keep)
            self._folder.sweep()

    def _choose(self) -> tuple[Manifest | None, list[Skipped]] | SnapshotError:
        """The newest intact snapshot, and those skipped on the way to it. Rank 0 only."""
        try:
            self._check_fence()
        except StaleGenerationError as error:
            return error
        self._folder.sweep()
        skipped: list[Skipped] = []
        for step in self._folder.steps():
            try:
                return verify(self._folder.path(step), step=step, job_id=self._job_id), skipped
            except BadSnapshotError as error:
                self._folder.quarantine(step)
                skipped.append(Skipped(step, str(error)))
        return None, skipped

    def _check_fence(self) -> None:
        """The keeper names the one generation that may commit; a zombie of an earlier one stops here."""
        if self._fence is None:
            return
        value = read_json(self._fence)
        current = value.get("generation") if isinstance(value, dict) else None
        if current != self._folder.generation:
            raise StaleGenerationError(
                f"generation {self._folder.generation} may not commit a snapshot: {self._fence} names {current}"
            )

    def _tell(self, result: SaveResult) -> None:
        if result.saved:
            reporter().place(durable_step=result.step)
            reporter().clear(self._complaint)
        elif self._world.rank == 0:
            self._complaint = f"snapshot {result.step} not saved, training goes on: {result.problem}"
            reporter().warn(self._complaint)


def _unloadable(error: Exception) -> str:
    """The heart of torch's long message: the class that it would have to trust."""
    found = re.search(r"GLOBAL ([\w.]+)", str(error))
    return f"it holds a {found[1]}" if found else str(error).partition("\n")[0]


def _disk_problem(error: OSError) -> str:
    reason = "the disk takes no more: " if error.errno in _DISK_FULL else ""
    return f"{reason}{error}"
