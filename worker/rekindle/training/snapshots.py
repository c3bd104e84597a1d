"""Taking and restoring snapshots: whole, checked, and committed by one generation only."""

import os
import secrets
import shutil
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

from rekindle.contract.environment import RankEnv
from rekindle.contract.score import Score, best_step
from rekindle.training.manifest import MODEL, rank_file, shard_file
from rekindle.training.process_group import World, joined_world
from rekindle.training.reporting import reporter
from rekindle.training.restoring import Layout, Restored, Restoring
from rekindle.training.shards import nested, take_apart
from rekindle.training.snapshot_folder import SnapshotFolder
from rekindle.training.snapshot_writer import SaveResult, SnapshotWriter, Staged, no_objection
from rekindle.training.staging import Staging

Objection = Callable[[dict[str, Any]], str | None]


class Snapshots:
    """The snapshots of one training, shared by all its ranks.

    Every method is called by all ranks at the same step, from one thread. ``directory`` must be the same folder for
    all; left out, it is the job's own under rekindle, and ``snapshots`` in the working directory under plain torchrun.
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        keep: int = 3,
        world: World | None = None,
        memory: Path | None = None,
        layout: Layout | None = None,
    ) -> None:
        """``memory`` is a folder in shared memory for the copies of ``begin_copy``; its parent must be there.

        ``layout`` gives a state like those that were saved. Where it has a DTensor, ``restore`` gives one that is
        divided like it, and without a layout the whole tensor.

        Raises NotADirectoryError where there is a file in place of the folder.
        """
        env = RankEnv.read(os.environ)
        self._world = world if world is not None else joined_world(env)
        fenced = env.run_dir is not None and env.generation is not None
        fence = env.run_dir.fence if fenced and env.run_dir is not None else None
        generation = self._world.broadcast(env.generation or secrets.token_hex(4))
        self._folder = SnapshotFolder(Path(directory or env.snapshot_dir or "snapshots"), generation, _pins(env))
        if self._folder.root.exists() and not self._folder.root.is_dir():
            raise NotADirectoryError(
                f"{self._folder.root} is a file, and must be the folder of snapshots: move it away or name another one"
            )
        self._writer = SnapshotWriter(self._world.beside(), self._folder, env.job_id, fence, keep)
        self._restoring = Restoring(self._world, self._writer, layout)
        self._memory: SnapshotWriter | None = None
        if memory is not None:
            copies = SnapshotFolder(memory, generation)
            self._memory = SnapshotWriter(self._writer.world, copies, env.job_id, fence, keep=1, in_memory=True)
        self._staging = Staging()
        self._under_way: Future[SaveResult] | None = None
        self._copying = False  # what is under way goes into shared memory
        self._complaint = ""  # the notice of the last failure

    def save(
        self, step: int, epoch: int | None, shared_state: dict[str, Any], rank_state: dict[str, Any]
    ) -> SaveResult:
        """Take the snapshot of ``step``; on return it is on disk, checked, or the result says why not.

        ``shared_state`` is taken from rank 0, but of a DTensor in it every rank saves its own part; states may hold
        tensors, numbers, text, lists and dicts.

        Raises SnapshotError where the state could never be loaded again, StaleGenerationError where a newer attempt
        runs: both on every rank.
        """
        self.finish()
        self.begin(step, epoch, shared_state, rank_state)
        result = self.finish()
        if result is None:
            raise AssertionError("a snapshot was begun")
        return result

    def begin(
        self,
        step: int,
        epoch: int | None,
        shared_state: dict[str, Any],
        rank_state: dict[str, Any],
        *,
        objection: Objection | None = None,
        score: Score | None = None,
    ) -> None:
        """Copy the states and have them written beside the training, which may change them on return.

        Nothing may be ``begun`` still; ``finish`` tells how it ends. ``objection`` looks at the copy of what this rank
        saves for all, and keeps it from being committed by a reason: weights that are not finite, say. The snapshot
        with the best ``score`` is kept beyond the newest ones.
        """
        staged = replace(self._stage(step, epoch, shared_state, rank_state, objection), score=score)
        self._under_way = _in_a_thread(lambda: self._writer.write(staged))

    @property
    def leads(self) -> bool:
        """This rank decides when snapshots are due, and commits them."""
        return self._world.rank == 0

    def best_score(self) -> Score | None:
        """Of the best snapshot on disk, on every rank; None where no snapshot has a score."""
        scores = self._writer.scores() if self.leads else {}
        best = best_step(scores)
        return self._world.broadcast(None if best is None else scores[best])

    @property
    def copies(self) -> bool:
        """Copies in shared memory can be taken."""
        return self._memory is not None

    def begin_copy(
        self,
        step: int,
        epoch: int | None,
        shared_state: dict[str, Any],
        rank_state: dict[str, Any],
        *,
        objection: Objection | None = None,
    ) -> None:
        """Like ``begin``, into shared memory: the newest copy is kept, and ``restore`` takes it if it is newer.

        Where it does not fit there are no ``copies`` from then on, with a notice.
        """
        memory = self._memory
        if memory is None:
            raise RuntimeError("these snapshots have no folder in shared memory")
        staged = self._stage(step, epoch, shared_state, rank_state, objection)
        self._copying = True
        self._under_way = _in_a_thread(lambda: memory.write(staged))

    def forget_copies(self) -> None:
        """What is on disk is as new: shared memory is given back."""
        if self._memory is not None and self._world.rank == 0:
            shutil.rmtree(self._memory.folder.root, ignore_errors=True)

    @property
    def begun(self) -> bool:
        """A snapshot awaits its ``finish``."""
        return self._under_way is not None

    @property
    def writing(self) -> bool:
        """This rank is still writing: ``finish`` would wait."""
        return self._under_way is not None and not self._under_way.done()

    def finish(self, timeout: float | None = None) -> SaveResult | None:
        """Wait for the snapshot under way and tell its result, which is the same on all ranks; None where none is.

        Raises what ``save`` does, and TimeoutError where it takes more than ``timeout`` seconds.
        """
        if self._under_way is None:
            return None
        if not wait([self._under_way], timeout).done:
            raise TimeoutError(f"a snapshot is not written after {timeout} s")
        (done, self._under_way), (copied, self._copying) = (self._under_way, None), (self._copying, False)
        result = done.result()
        if copied:
            self._tell_of_copy(result)
        else:
            self._tell(result)
        return result

    def put_off(self) -> None:
        """Say that a snapshot was due and not begun, since the one before is still being written."""
        if self._world.rank == 0:
            self._complain("snapshots are due faster than they can be written: one was left out")

    def restore(self) -> Restored | None:
        """The newest snapshot that passes all checks, or None where there is none; the page is told the step.

        One that does not pass is put into quarantine, with a notice, and the one before it is tried. Raises
        StaleGenerationError where a newer attempt runs, and SnapshotError where the disk does not give what it has, or
        where no snapshot can be loaded though there are some.
        """
        restored = self.newest()
        if restored is not None:
            reporter().resumed(restored.step)
        return restored

    def newest(self) -> Restored | None:
        """``restore`` without a word to the page: for a training that goes back while it runs."""
        return self._restoring.newest(self._memory)

    def _stage(
        self,
        step: int,
        epoch: int | None,
        shared_state: dict[str, Any],
        rank_state: dict[str, Any],
        objection: Objection | None,
    ) -> Staged:
        if self._under_way is not None:
            raise RuntimeError(f"snapshot {step} begun before the one under way was finished")
        shared_state, shards = take_apart(shared_state)
        states: dict[str, Any] = {rank_file(self._world.rank): rank_state}
        if self._world.rank == 0:
            states[MODEL] = shared_state
        if shards is not None:
            states[shard_file(self._world.rank)] = shards
        files = self._staging.copy(states)
        parts = [files.get(MODEL, {}), nested(files.get(shard_file(self._world.rank), {}))]
        objects = no_objection if objection is None else lambda: _first(objection, parts)
        return Staged(step, epoch, files, objects, self._staging.bytes)

    def _tell(self, result: SaveResult) -> None:
        if result.saved:
            reporter().place(snapshot_step=result.step)
            reporter().clear(self._complaint)
            self._complaint = ""
        elif self._world.rank == 0:
            reassurance = "" if result.objected else ", training goes on"
            self._complain(f"snapshot {result.step} not saved{reassurance}: {result.problem}")

    def _tell_of_copy(self, result: SaveResult) -> None:
        if result.saved:
            reporter().place(memory_step=result.step)
            return
        if not result.objected:
            self._memory = None
        if self._world.rank == 0:
            self._complain(f"no copy in shared memory, restarts go on from the disk: {result.problem}")

    def _complain(self, notice: str) -> None:
        if notice != self._complaint:
            self._complaint = notice
            reporter().warn(notice)


def _pins(env: RankEnv) -> Path | None:
    return None if env.run_dir is None else env.run_dir.pins


def _first(objection: Objection, parts: list[dict[str, Any]]) -> str | None:
    return next((found for part in parts if (found := objection(part)) is not None), None)


def _in_a_thread(write: Callable[[], SaveResult]) -> Future[SaveResult]:
    """The thread does not keep a process alive that has failed: its peers may never answer it."""
    future: Future[SaveResult] = Future()

    def work() -> None:
        try:
            future.set_result(write())
        except BaseException as error:  # noqa: BLE001  # whatever it is, ``finish`` raises it in the training thread
            future.set_exception(error)

    Thread(target=work, name="rekindle-snapshot", daemon=True).start()
    return future
