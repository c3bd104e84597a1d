"""Taking up a snapshot again: the newest that every rank can load."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from rekindle.training.manifest import MODEL, Manifest, rank_file
from rekindle.training.process_group import World
from rekindle.training.reporting import reporter
from rekindle.training.shards import ShardFiles, divided, put_together
from rekindle.training.snapshot_choice import Skipped, Unloadable, choose, set_aside
from rekindle.training.snapshot_files import read_state
from rekindle.training.snapshot_writer import SnapshotError, SnapshotWriter, unloadable_part

Layout = Callable[[], dict[str, Any]]


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
    from_disk: bool = True  # else a copy in shared memory


@dataclass(frozen=True, slots=True)
class Restoring:
    """Where ``layout`` gives a state with a DTensor, one that is divided like it is restored, else the whole tensor."""

    world: World
    disk: SnapshotWriter
    layout: Layout | None

    def newest(self, memory: SnapshotWriter | None) -> Restored | None:
        """What ``Snapshots.restore`` gives; ``memory`` may hold a newer copy. All ranks must call it."""
        unloadable: Unloadable = {}
        skipped: list[Skipped] = []
        while True:
            manifest, folder = self._choose(memory, unloadable, skipped)
            if manifest is None:
                return None
            restored, flaw = self._read(folder, manifest, skipped)
            flaws = [each for each in self.world.gather(flaw) if each is not None]
            if not flaws and restored is not None:
                if self._leads:
                    set_aside(self.disk, unloadable)
                return restored
            unloadable[folder] = Skipped(manifest.step, flaws[0])

    @property
    def _leads(self) -> bool:
        return self.world.rank == 0

    def _choose(
        self, memory: SnapshotWriter | None, unloadable: Unloadable, skipped: list[Skipped]
    ) -> tuple[Manifest | None, Path]:
        """As rank 0 has chosen; what it has passed over is told, and goes into ``skipped``."""
        chosen = self.world.broadcast(choose(self.disk, memory, unloadable) if self._leads else None)
        if isinstance(chosen, SnapshotError):
            raise chosen
        if chosen is None:
            raise TypeError("rank 0 has chosen nothing")
        manifest, folder, passed_over = chosen
        for each in passed_over:
            if each not in skipped:
                skipped.append(each)
                if self._leads:
                    reporter().skipped(each.step, each.reason)
        return manifest, folder

    def _read(self, folder: Path, manifest: Manifest, skipped: list[Skipped]) -> tuple[Restored | None, str | None]:
        """What this rank takes up, or why that cannot be loaded although it is as it was written."""
        former = range(self.world.rank, manifest.world_size, self.world.size)
        try:
            restored = Restored(
                step=manifest.step,
                epoch=manifest.epoch,
                world_size=manifest.world_size,
                shared_state=self._read_shared(folder, manifest),
                rank_states=[read_state(folder / rank_file(rank)) for rank in former],
                skipped=skipped,
                from_disk=folder.parent == self.disk.folder.root,
            )
        except UnpicklingError as error:
            return None, f"it cannot be loaded: {unloadable_part(error)}"
        return restored, None

    def _read_shared(self, folder: Path, manifest: Manifest) -> dict[str, Any]:
        state = read_state(folder / MODEL)
        if not manifest.sharded:
            return state
        layout = {} if self.layout is None else divided(self.layout())
        try:
            whole: dict[str, Any] = put_together(state, layout, ShardFiles(folder, manifest.world_size))
        except ValueError as error:
            raise ValueError(
                f"the snapshot of step {manifest.step} does not fit this training: {error}; give Run the parts it was "
                "taken with, or start in a new snapshot folder"
            ) from error
        return whole
