"""The snapshot to resume from: the latest intact one, on disk or in shared memory, that every rank can load."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from rekindle.contract.run_dir.snapshots import MODEL, BadSnapshotError, Manifest, rank_file, shard_file
from rekindle.training.process_group import World
from rekindle.training.reporting.reporter import reporter
from rekindle.training.snapshots.engine.shm import ensure_private_dir
from rekindle.training.snapshots.engine.writer import SnapshotError, SnapshotWriter, unloadable_part
from rekindle.training.snapshots.storage.directory import CACHE_TIMEOUT, refresh, verify, verify_files
from rekindle.training.snapshots.storage.dtensor_io import RemoteShardFiles, ShardFiles, find_dtensors, reshard
from rekindle.training.snapshots.storage.files import read_state

STORAGE_TIMEOUT = 300.0  # seconds in which unavailable storage may come back, as a network file system does
_RETRY_INTERVAL = 2.0  # seconds

Layout = Callable[[], dict[str, Any]]


class StorageUnavailableError(SnapshotError):
    """The disk cannot be read now; that is no evidence against a snapshot."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A snapshot that failed its checks and was quarantined."""

    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class Restored:
    """A snapshot as this rank loads it.

    ``rank_states`` are those of the former ranks that this rank replaces: its own where the world size is the same;
    one, several or none where it is not.
    """

    step: int
    epoch: int | None
    world_size: int
    shared_state: dict[str, Any]
    rank_states: list[dict[str, Any]]
    skipped: list[Skipped]
    from_disk: bool = True  # else from shared memory


_Selection = tuple[Manifest | None, Path, list[Skipped]]  # the snapshot, its directory, and those skipped
_Unloadable = dict[Path, Skipped]  # by directory: as they were written, and yet some rank cannot load them


@dataclass(frozen=True, slots=True)
class SnapshotLoader:
    """Where ``layout`` gives a state with a DTensor, one that is sharded like it is restored, else the whole tensor."""

    world: World
    disk: SnapshotWriter
    layout: Layout | None

    def load(self, shm: SnapshotWriter | None) -> Restored | None:
        """What ``Snapshots.restore`` returns; ``shm`` may hold a later snapshot. All ranks must call it."""
        unloadable: _Unloadable = {}
        skipped: list[Skipped] = []
        while True:
            manifest, directory = self._select(shm, unloadable, skipped)
            if manifest is None:
                return None
            restored, problem = self._read(directory, manifest, skipped)
            problems = [each for each in self.world.gather(problem) if each is not None]
            for each in problems:
                if isinstance(each, SnapshotError):
                    raise each
            if not problems and restored is not None:
                if self.world.rank == 0:
                    self._quarantine(unloadable)
                return restored
            unloadable[directory] = Skipped(manifest.step, str(problems[0]))

    def _select(
        self, shm: SnapshotWriter | None, unloadable: _Unloadable, skipped: list[Skipped]
    ) -> tuple[Manifest | None, Path]:
        """As rank 0 has selected; what it has skipped is reported, and added to ``skipped``."""
        selected = self.world.broadcast(_select(self.disk, shm, unloadable) if self.world.rank == 0 else None)
        if isinstance(selected, SnapshotError):
            raise selected
        if selected is None:
            raise TypeError("rank 0 has selected nothing")
        manifest, directory, newly_skipped = selected
        for each in newly_skipped:
            if each not in skipped:
                skipped.append(each)
                if self.world.rank == 0:
                    reporter().skipped(each.step, each.reason)
        return manifest, directory

    def _read(
        self, directory: Path, manifest: Manifest, skipped: list[Skipped]
    ) -> tuple[Restored | None, str | SnapshotError | None]:
        """What this rank loads, or why it cannot, although the snapshot is as it was written.

        On another machine than rank 0's, which has verified it, this rank verifies what it reads, too.
        """
        former = range(self.world.rank, manifest.world_size, self.world.size)
        try:
            if self._is_remote:
                self._verify(directory, manifest, [MODEL, *map(rank_file, former)])
            shared = self._read_shared(directory, manifest)
            own = [read_state(directory / rank_file(rank)) for rank in former]
        except UnpicklingError as error:
            return None, f"it cannot be loaded: {unloadable_part(error)}"
        except BadSnapshotError as error:
            return None, f"on rank {self.world.rank}, {error}"
        except OSError as error:
            if not self._is_remote:
                raise
            return None, _unavailable(directory, error)
        on_disk = directory.parent == self.disk.storage.root
        return Restored(manifest.step, manifest.epoch, manifest.world_size, shared, own, skipped, on_disk), None

    def _read_shared(self, directory: Path, manifest: Manifest) -> dict[str, Any]:
        state = read_state(directory / MODEL)
        if not manifest.sharded:
            return state
        layout = {} if self.layout is None else find_dtensors(self.layout())
        try:
            whole: dict[str, Any] = reshard(state, layout, self._shard_files(directory, manifest))
        except ValueError as error:
            raise ValueError(
                f"the snapshot of step {manifest.step} does not fit this training: {error}; give Run the parts it was "
                "saved with, or start in a new snapshot directory"
            ) from error
        return whole

    def _shard_files(self, directory: Path, manifest: Manifest) -> ShardFiles:
        if not self._is_remote:
            return ShardFiles(directory, manifest.world_size)
        names = [shard_file(rank) for rank in range(manifest.world_size)]
        self._verify(directory, manifest, names, content=False)
        return RemoteShardFiles(directory, manifest.world_size, lambda name: self._verify(directory, manifest, [name]))

    @property
    def _is_remote(self) -> bool:
        """On another machine than rank 0."""
        return self.world.spans_machines and self.world.node != self.world.nodes[0]

    def _verify(self, directory: Path, manifest: Manifest, names: list[str], *, content: bool = True) -> None:
        """Raises BadSnapshotError, and OSError where the disk stays unavailable."""
        deadline = time.monotonic() + STORAGE_TIMEOUT
        while True:
            try:
                return verify_files(directory, manifest, names, content=content, timeout=CACHE_TIMEOUT)
            except OSError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_RETRY_INTERVAL)

    def _quarantine(self, unloadable: _Unloadable) -> None:
        """An older snapshot is known to be good now. Rank 0 only."""
        for directory, each in unloadable.items():
            if directory.parent == self.disk.storage.root:
                self.disk.storage.quarantine(each.step)


def _select(disk: SnapshotWriter, shm: SnapshotWriter | None, unloadable: _Unloadable) -> _Selection | SnapshotError:
    """The latest intact snapshot; the error is for all ranks. Rank 0 only.

    Waits for unavailable storage; then this attempt ends, and the next one may find it available. Nor does a training
    start from the beginning where there are snapshots, and none that can be loaded.
    """
    deadline = time.monotonic() + STORAGE_TIMEOUT
    while isinstance(found := _select_once(disk, shm, unloadable), StorageUnavailableError):
        if time.monotonic() >= deadline:
            break
        reporter().warn(f"waiting for the snapshots: {found}")
        time.sleep(_RETRY_INTERVAL)
    return found


def _select_once(
    disk: SnapshotWriter, shm: SnapshotWriter | None, unloadable: _Unloadable
) -> _Selection | SnapshotError:
    if disk.world.spans_machines:
        refresh(disk.storage.root.parent)
    try:
        disk.check_fence()
        disk.check_owner()
        manifest, skipped = _select_on_disk(disk, unloadable)
    except SnapshotError as error:
        return error
    except OSError as error:
        return _unavailable(disk.storage.root, error)
    copy = None if shm is None else _select_in_shm(shm, unloadable)
    if manifest is None and copy is None and unloadable:
        latest = next(iter(unloadable.values()))
        return SnapshotError(
            f"no snapshot in {disk.storage.root} can be loaded; of the latest, of step {latest.step}, {latest.reason}. "
            "Allow its class by torch.serialization.add_safe_globals, or start in a new snapshot directory"
        )
    if copy is not None and shm is not None and (manifest is None or copy.step > manifest.step):
        return copy, shm.storage.path(copy.step), skipped
    return manifest, disk.storage.path(0 if manifest is None else manifest.step), skipped


def _select_on_disk(disk: SnapshotWriter, unloadable: _Unloadable) -> tuple[Manifest | None, list[Skipped]]:
    """Raises OSError or SnapshotError where the disk cannot be read."""
    timeout = CACHE_TIMEOUT if disk.world.spans_machines else 0.0
    disk.storage.clean_leftovers()
    skipped: list[Skipped] = []
    for step in disk.storage.steps():
        if (known := unloadable.get(disk.storage.path(step))) is not None:
            skipped.append(known)
            continue
        try:
            return verify(disk.storage.path(step), step=step, job_id=disk.job_id, timeout=timeout), skipped
        except OSError as error:
            raise _unavailable(disk.storage.path(step), error) from error
        except BadSnapshotError as error:
            disk.storage.quarantine(step)
            skipped.append(Skipped(step, str(error)))
    return None, skipped


def _select_in_shm(shm: SnapshotWriter, unloadable: _Unloadable) -> Manifest | None:
    """A snapshot that is damaged, or is stored where another user could have written it, is ignored."""
    storage = shm.storage
    if not storage.root.exists():
        return None
    with suppress(OSError):
        ensure_private_dir(storage.root)
        storage.clean_leftovers()
        for step in storage.steps():
            if storage.path(step) not in unloadable:
                with suppress(BadSnapshotError):
                    return verify(storage.path(step), step=step, job_id=shm.job_id)
    return None


def _unavailable(path: Path, error: OSError) -> StorageUnavailableError:
    return StorageUnavailableError(
        f"{path} cannot be read now: {error}. If it is lost for good, move it out of its directory: then the snapshot "
        "before it is used"
    )
