"""Loading a snapshot: the latest that every rank can load."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from rekindle.contract.run_dir.snapshots import MODEL, Manifest, rank_file
from rekindle.training.process_group import World
from rekindle.training.reporting.reporter import reporter
from rekindle.training.snapshots.engine.selection import Skipped, Unloadable, quarantine, select
from rekindle.training.snapshots.engine.writer import SnapshotError, SnapshotWriter, unloadable_part
from rekindle.training.snapshots.storage.dtensor_io import ShardFiles, find_dtensors, reshard
from rekindle.training.snapshots.storage.files import read_state

Layout = Callable[[], dict[str, Any]]


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


@dataclass(frozen=True, slots=True)
class SnapshotLoader:
    """Where ``layout`` gives a state with a DTensor, one that is sharded like it is restored, else the whole tensor."""

    world: World
    disk: SnapshotWriter
    layout: Layout | None

    def load(self, shm: SnapshotWriter | None) -> Restored | None:
        """What ``Snapshots.restore`` returns; ``shm`` may hold a later snapshot. All ranks must call it."""
        unloadable: Unloadable = {}
        skipped: list[Skipped] = []
        while True:
            manifest, folder = self._select(shm, unloadable, skipped)
            if manifest is None:
                return None
            restored, problem = self._read(folder, manifest, skipped)
            problems = [each for each in self.world.gather(problem) if each is not None]
            if not problems and restored is not None:
                if self.world.rank == 0:
                    quarantine(self.disk, unloadable)
                return restored
            unloadable[folder] = Skipped(manifest.step, problems[0])

    def _select(
        self, shm: SnapshotWriter | None, unloadable: Unloadable, skipped: list[Skipped]
    ) -> tuple[Manifest | None, Path]:
        """As rank 0 has selected; what it has skipped is reported, and added to ``skipped``."""
        selected = self.world.broadcast(select(self.disk, shm, unloadable) if self.world.rank == 0 else None)
        if isinstance(selected, SnapshotError):
            raise selected
        if selected is None:
            raise TypeError("rank 0 has selected nothing")
        manifest, folder, newly_skipped = selected
        for each in newly_skipped:
            if each not in skipped:
                skipped.append(each)
                if self.world.rank == 0:
                    reporter().skipped(each.step, each.reason)
        return manifest, folder

    def _read(self, folder: Path, manifest: Manifest, skipped: list[Skipped]) -> tuple[Restored | None, str | None]:
        """What this rank loads, or why it cannot, although the snapshot is as it was written."""
        former = range(self.world.rank, manifest.world_size, self.world.size)
        try:
            restored = Restored(
                step=manifest.step,
                epoch=manifest.epoch,
                world_size=manifest.world_size,
                shared_state=self._read_shared(folder, manifest),
                rank_states=[read_state(folder / rank_file(rank)) for rank in former],
                skipped=skipped,
                from_disk=folder.parent == self.disk.storage.root,
            )
        except UnpicklingError as error:
            return None, f"it cannot be loaded: {unloadable_part(error)}"
        return restored, None

    def _read_shared(self, folder: Path, manifest: Manifest) -> dict[str, Any]:
        state = read_state(folder / MODEL)
        if not manifest.sharded:
            return state
        layout = {} if self.layout is None else find_dtensors(self.layout())
        try:
            whole: dict[str, Any] = reshard(state, layout, ShardFiles(folder, manifest.world_size))
        except ValueError as error:
            raise ValueError(
                f"the snapshot of step {manifest.step} does not fit this training: {error}; give Run the parts it was "
                "saved with, or start in a new snapshot directory"
            ) from error
        return whole
