"""Loading the snapshot to resume from: the latest intact one, on disk or in memory, that every rank can load."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, cast

from rekindle.contract.run_dir.snapshot_dir import MODEL, BadSnapshotError, Manifest, rank_file, shard_file
from rekindle.training.process_group import World
from rekindle.training.reporter import reporter
from rekindle.training.snapshots.directory import CACHE_TIMEOUT, refresh, verify, verify_files
from rekindle.training.snapshots.dtensor_io import (
    KeyPath,
    RemoteShardFiles,
    ShardFiles,
    find_dtensors,
    needed_parts,
    overlaps,
    reshard,
)
from rekindle.training.snapshots.node_copies import LostPartError, NodeCopies, NodeCopy, NodeCopyWriter
from rekindle.training.snapshots.shared_memory import ensure_private_dir
from rekindle.training.snapshots.state_files import read_state
from rekindle.training.snapshots.writer import SnapshotError, SnapshotWriter, unloadable_part

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

STORAGE_TIMEOUT = 300.0  # seconds in which unavailable storage may come back, as a network file system does
RETRY_INTERVAL = 2.0  # seconds

Layout = Callable[[], dict[str, Any]]


class StorageUnavailableError(SnapshotError):
    """Raised where the disk cannot be read now; that is no evidence against a snapshot."""


@dataclass(frozen=True, slots=True)
class SkippedSnapshot:
    """A snapshot that failed its checks and was quarantined."""

    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class RestoredSnapshot:
    """A snapshot as this rank loads it.

    ``rank_states`` are those of the former ranks that this rank replaces: its own where the world size is the same;
    one, several or none where it is not.
    """

    step: int
    epoch: int | None
    world_size: int
    shared_state: dict[str, Any]
    rank_states: list[dict[str, Any]]
    from_disk: bool = True  # else from shared memory
    skipped: list[SkippedSnapshot] = field(default_factory=list)  # those that were tried before


Selection = tuple[Manifest | None, Path, list[SkippedSnapshot]]  # the snapshot, its directory, and those skipped
Unloadable = dict[Path, SkippedSnapshot]  # by directory: as they were written, and yet some rank cannot load them
_Read = tuple[RestoredSnapshot | None, str | SnapshotError | None]  # what a rank has loaded, or why it has not


@dataclass(frozen=True, slots=True)
class SnapshotLoader:
    """Loads the snapshot to resume from; tensors are sharded where ``layout`` gives a state with DTensors."""

    world: World
    disk: SnapshotWriter
    layout: Layout | None

    def load(self, shm: SnapshotWriter | None) -> RestoredSnapshot | None:
        """Load what ``Snapshots.restore`` returns; ``shm`` may hold a later snapshot. All ranks must call it."""
        unloadable: Unloadable = {}
        skipped: list[SkippedSnapshot] = []
        nodes = NodeCopies(self.world, shm.storage, shm.job_id, shm.void) if isinstance(shm, NodeCopyWriter) else None
        copies = {} if nodes is None else {nodes.key(copy): copy for copy in nodes.offered()}
        while True:
            manifest, directory = self._select(None if nodes else shm, copies, unloadable, skipped)
            if manifest is None:
                return None
            if nodes is None or directory not in copies:
                restored, problem = self._read_verified(directory, manifest)
            else:
                try:
                    restored, problem = self._read_copy(nodes, copies[directory])
                except LostPartError:
                    del copies[directory]
                    continue
                finally:
                    nodes.discard(manifest)
            problems = [each for each in self.world.gather(problem) if each is not None]
            for each in problems:
                if isinstance(each, SnapshotError):
                    raise each
            if not problems and restored is not None:
                if self.world.rank == 0:
                    self._quarantine(unloadable)
                return replace(restored, skipped=skipped)
            unloadable[directory] = SkippedSnapshot(manifest.step, str(problems[0]))

    def _select(
        self,
        shm: SnapshotWriter | None,
        copies: dict[Path, NodeCopy],
        unloadable: Unloadable,
        skipped: list[SkippedSnapshot],
    ) -> tuple[Manifest | None, Path]:
        """Get what rank 0 has selected; what it has skipped is reported, and added to ``skipped``."""
        own = select(self.disk, shm, copies, unloadable) if self.world.rank == 0 else None
        selected = self.world.broadcast(own)
        if isinstance(selected, SnapshotError):
            raise selected
        manifest, directory, newly_skipped = cast("Selection", selected)
        for each in newly_skipped:
            if each not in skipped:
                skipped.append(each)
                if self.world.rank == 0:
                    reporter().skipped(each.step, each.reason)
        return manifest, directory

    def _read_copy(self, nodes: NodeCopies, copy: NodeCopy) -> _Read:
        """Read what the machines have in memory: what this one lacks is fetched first.

        Raises LostPartError, on all ranks, where nobody has it all.
        """
        manifest = copy.manifest
        directory = nodes.collect(copy, [MODEL, *map(rank_file, self._former_ranks(manifest))])
        if manifest.sharded:
            slices = nodes.slices(copy, [shard_file(rank) for rank in range(manifest.world_size)])
            needed = {}
            with suppress(UnpicklingError):  # which ``_read`` reports
                needed = needed_parts(read_state(directory / MODEL), self._layout())
            nodes.collect(copy, [name for name, saved in slices.items() if overlaps(saved, needed)])
        return self._read(directory, manifest, partial(ShardFiles, directory, manifest.world_size, partial=True))

    def _read_verified(self, directory: Path, manifest: Manifest) -> _Read:
        """Read a snapshot that rank 0 has verified; on another machine than rank 0's, this rank verifies it, too."""
        if not self.world.spans_machines or self.world.node == self.world.nodes[0]:
            return self._read(directory, manifest, partial(ShardFiles, directory, manifest.world_size))
        shards = [shard_file(rank) for rank in range(manifest.world_size)] if manifest.sharded else []

        def check(name: str) -> None:
            self._verify(directory, manifest, [name])

        try:
            self._verify(directory, manifest, shards, content=False)
            self._verify(directory, manifest, [MODEL, *map(rank_file, self._former_ranks(manifest))])
            return self._read(directory, manifest, partial(RemoteShardFiles, directory, manifest.world_size, check))
        except BadSnapshotError as error:
            return None, f"on rank {self.world.rank}, {error}"
        except OSError as error:
            return None, storage_unavailable(directory, error)

    def _read(self, directory: Path, manifest: Manifest, shard_files: Callable[[], ShardFiles]) -> _Read:
        """Read what this rank loads, or find why it cannot, although the snapshot is as it was written."""
        try:
            shared = self._read_shared(directory, manifest, shard_files)
            own = [read_state(directory / rank_file(rank)) for rank in self._former_ranks(manifest)]
        except UnpicklingError as error:
            return None, f"it cannot be loaded: {unloadable_part(error)}"
        on_disk = directory.parent == self.disk.storage.root
        return RestoredSnapshot(manifest.step, manifest.epoch, manifest.world_size, shared, own, on_disk), None

    def _former_ranks(self, manifest: Manifest) -> range:
        """Former ranks that this rank replaces."""
        return range(self.world.rank, manifest.world_size, self.world.size)

    def _read_shared(
        self, directory: Path, manifest: Manifest, shard_files: Callable[[], ShardFiles]
    ) -> dict[str, Any]:
        state = read_state(directory / MODEL)
        if not manifest.sharded:
            return state
        try:
            whole: dict[str, Any] = reshard(state, self._layout(), shard_files())
        except ValueError as error:
            raise ValueError(
                f"the snapshot of step {manifest.step} does not fit this training: {error}; give Run the parts it was "
                "saved with, or start in a new snapshot directory"
            ) from error
        return whole

    def _layout(self) -> "dict[KeyPath, DTensor]":
        return {} if self.layout is None else find_dtensors(self.layout())

    def _verify(self, directory: Path, manifest: Manifest, names: list[str], *, content: bool = True) -> None:
        """Verify files. Raises BadSnapshotError, and OSError where the disk stays unavailable."""
        deadline = time.monotonic() + STORAGE_TIMEOUT
        while True:
            try:
                files = {name: manifest.files[name] for name in names}
                return verify_files(directory, files, content=content, timeout=CACHE_TIMEOUT)
            except OSError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(RETRY_INTERVAL)

    def _quarantine(self, unloadable: Unloadable) -> None:
        """Quarantine unloadable snapshots, now that an older one is known to be good. Rank 0 only."""
        for directory, each in unloadable.items():
            if directory.parent == self.disk.storage.root:
                self.disk.storage.quarantine(each.step)


def select(
    disk: SnapshotWriter, shm: SnapshotWriter | None, copies: dict[Path, NodeCopy], unloadable: Unloadable
) -> Selection | SnapshotError:
    """Select the latest intact snapshot; the error is for all ranks. Rank 0 only.

    Waits for unavailable storage; then this attempt ends, and the next one may find it available. Nor does a training
    start from the beginning where there are snapshots, and none that can be loaded.
    """
    deadline = time.monotonic() + STORAGE_TIMEOUT
    while isinstance(found := _select_once(disk, shm, copies, unloadable), StorageUnavailableError):
        if time.monotonic() >= deadline:
            break
        reporter().warn(f"waiting for the snapshots: {found}")
        time.sleep(RETRY_INTERVAL)
    return found


def _select_once(
    disk: SnapshotWriter, shm: SnapshotWriter | None, copies: dict[Path, NodeCopy], unloadable: Unloadable
) -> Selection | SnapshotError:
    if disk.world.spans_machines:
        refresh(disk.storage.root.parent)
    try:
        disk.check_fence()
        disk.check_owner()
        manifest, skipped = _select_on_disk(disk, unloadable)
    except SnapshotError as error:
        return error
    except OSError as error:
        return storage_unavailable(disk.storage.root, error)
    copy, directory = _select_copy(shm, copies, unloadable)
    if manifest is None and copy is None and unloadable:
        latest = next(iter(unloadable.values()))
        return SnapshotError(
            f"no snapshot in {disk.storage.root} can be loaded; of the latest, of step {latest.step}, {latest.reason}. "
            "Allow its class by torch.serialization.add_safe_globals, or start in a new snapshot directory"
        )
    if copy is not None and (manifest is None or copy.step > manifest.step):
        return copy, directory, skipped
    return manifest, disk.storage.path(0 if manifest is None else manifest.step), skipped


def _select_on_disk(disk: SnapshotWriter, unloadable: Unloadable) -> tuple[Manifest | None, list[SkippedSnapshot]]:
    """Select the latest intact one on disk. Raises OSError or SnapshotError where the disk cannot be read."""
    timeout = CACHE_TIMEOUT if disk.world.spans_machines else 0.0
    disk.storage.clean_leftovers()
    skipped: list[SkippedSnapshot] = []
    for step in disk.storage.steps():
        if (known := unloadable.get(disk.storage.path(step))) is not None:
            skipped.append(known)
            continue
        try:
            return verify(disk.storage.path(step), step=step, job_id=disk.job_id, timeout=timeout), skipped
        except OSError as error:
            raise storage_unavailable(disk.storage.path(step), error) from error
        except BadSnapshotError as error:
            disk.storage.quarantine(step)
            skipped.append(SkippedSnapshot(step, str(error)))
    return None, skipped


def _select_copy(
    shm: SnapshotWriter | None, copies: dict[Path, NodeCopy], unloadable: Unloadable
) -> tuple[Manifest | None, Path]:
    """Select the latest in memory: of several machines, whose ``copies`` are in order, or of this one, in ``shm``.

    A snapshot that is damaged, or is stored where another user could have written it, is ignored.
    """
    for directory, copy in copies.items():
        if directory not in unloadable:
            return copy.manifest, directory
    if shm is not None and shm.storage.root.exists():
        with suppress(OSError):
            ensure_private_dir(shm.storage.root)
            shm.storage.clean_leftovers()
            for directory in map(shm.storage.path, shm.storage.steps()):
                if directory not in unloadable:
                    with suppress(BadSnapshotError):
                        return verify(directory, step=int(directory.name), job_id=shm.job_id), directory
    return None, Path()


def storage_unavailable(path: Path, error: OSError) -> StorageUnavailableError:
    return StorageUnavailableError(
        f"{path} cannot be read now: {error}. If it is lost for good, move it out of its directory: then the snapshot "
        "before it is used"
    )
