"""Taking and restoring snapshots: whole, verified, and committed by one generation only."""

import os
import secrets
import shutil
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, cast

from rekindle.contract.environment import RankEnv
from rekindle.contract.run_dir.snapshot_dir import MODEL, SnapshotScore, best_step, rank_file, shard_file
from rekindle.training.process_group import World, joined_world
from rekindle.training.reporter import reporter
from rekindle.training.snapshots.directory import SnapshotStorage
from rekindle.training.snapshots.dtensor_io import split_shards, unflatten
from rekindle.training.snapshots.loader import Layout, RestoredSnapshot, SnapshotLoader
from rekindle.training.snapshots.node_copies import NodeCopyWriter, node_storage
from rekindle.training.snapshots.replicas import WeightSample
from rekindle.training.snapshots.staging import Staging
from rekindle.training.snapshots.writer import SaveResult, SnapshotWriter, Staged

Validator = Callable[[dict[str, Any]], str | None]


class Snapshots:
    """The snapshots of one training, shared by all its ranks.

    Every method is called by all ranks at the same step, from one thread. ``directory`` must be the same for all;
    default: the job's own under rekindle, and ``snapshots`` in the working directory under plain torchrun.
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        keep_last: int = 3,
        world: World | None = None,
        shm: Path | None = None,
        layout: Layout | None = None,
    ) -> None:
        """Set up writers for the disk and for ``shm``, a directory in shared memory whose parent must exist.

        ``layout`` gives a state like those that were saved. Where it has a DTensor, ``restore`` gives one that is
        sharded like it, and without a layout the whole tensor.

        Raises NotADirectoryError where ``directory`` is a file.
        """
        env = RankEnv.read(os.environ)
        self._world = world if world is not None else joined_world(env)
        generation = self._world.broadcast(env.generation or secrets.token_hex(4))
        root = Path(directory or env.snapshot_dir or "snapshots")
        if root.exists() and not root.is_dir():
            raise NotADirectoryError(
                f"{root} is a file, and must be the directory of snapshots: move it away or name another one"
            )
        storage = SnapshotStorage(root, generation, None if env.run_dir is None else env.run_dir.pins)
        fence = None if env.run_dir is None or env.generation is None else env.run_dir.fence
        self._disk = SnapshotWriter(self._world.with_new_group(), storage, env.job_id, fence, keep_last)
        self._shm: SnapshotWriter | None = None
        if shm is not None and self._world.spans_machines:
            void = None if env.run_dir is None else env.run_dir.memory_void
            copies = node_storage(shm, generation, self._world.node)
            self._shm = NodeCopyWriter(self._disk.world, copies, env.job_id, fence, keep_last=1, void=void)
        elif shm is not None:
            copies = SnapshotStorage(shm, generation)
            self._shm = SnapshotWriter(self._disk.world, copies, env.job_id, fence, keep_last=1, in_shm=True)
        self._shm_root = shm
        self._loader = SnapshotLoader(self._world, self._disk, layout)
        self._staging = Staging()
        self._write: Future[SaveResult] | None = None
        self._to_shm = False  # where ``_write`` goes
        self._notice = ""  # of the last failure
        self._differs_since: int | None = None  # step of the first snapshot whose ranks had different weights

    @property
    def is_coordinator(self) -> bool:
        """True for the rank that decides when snapshots are due, and commits them."""
        return self._world.rank == 0

    @property
    def has_shm(self) -> bool:
        """True where snapshots in shared memory can be taken."""
        return self._shm is not None

    @property
    def pending(self) -> bool:
        """True after ``async_save``, until ``wait``."""
        return self._write is not None

    @property
    def in_progress(self) -> bool:
        """True while this rank is still writing: ``wait`` would block."""
        return self._write is not None and not self._write.done()

    def save(
        self, step: int, epoch: int | None, shared_state: dict[str, Any], rank_state: dict[str, Any]
    ) -> SaveResult:
        """Take the snapshot of ``step``; on return it is on disk, verified, or the result has the reason.

        ``shared_state`` is taken from rank 0, but of a DTensor in it every rank saves its own shard; states may hold
        tensors, numbers, text, lists and dicts.

        Raises SnapshotError where the state could never be loaded again, StaleGenerationError where a newer attempt
        runs: both on every rank.
        """
        self.wait()
        self.async_save(step, epoch, shared_state, rank_state)
        return cast("SaveResult", self.wait())

    def async_save(
        self,
        step: int,
        epoch: int | None,
        shared_state: dict[str, Any],
        rank_state: dict[str, Any],
        *,
        validator: Validator | None = None,
        score: SnapshotScore | None = None,
        sample: WeightSample | None = None,
        to_shm: bool = False,
    ) -> None:
        """Copy the states and have them written by a thread: training may change them on return.

        Nothing may be ``pending``; ``wait`` returns the result. ``validator`` checks the copy of what this rank saves
        for all, and returns a reason not to commit it: weights that are not finite, say. The snapshot with the best
        ``score`` is kept in addition to the latest ones. A rank whose ``sample`` differs from that of rank 0 is
        reported, since what it has trained is not saved.

        ``to_shm``: into shared memory, where the latest is kept, and ``restore`` takes it if it is later than the
        disk's. Where it does not fit, ``has_shm`` is false from then on, with a notice.
        """
        if self._write is not None:
            raise RuntimeError(f"snapshot {step} started before the pending one was waited for")
        writer = self._shm if to_shm else self._disk
        if writer is None:
            raise RuntimeError("these snapshots have no directory in shared memory")
        files = self._copy(shared_state, rank_state)
        validate = partial(self._validate, validator, files)
        staged = Staged(step, epoch, files, validate, self._staging.bytes, score, sample)
        self._write, self._to_shm = _in_thread(lambda: writer.write(staged)), to_shm

    def wait(self, timeout: float | None = None) -> SaveResult | None:
        """Wait for the pending snapshot and return its result, the same on all ranks; None where none is pending.

        Raises what ``save`` does, and TimeoutError after ``timeout`` seconds.
        """
        if self._write is None:
            return None
        if not wait([self._write], timeout).done:
            raise TimeoutError(f"a snapshot is not written after {timeout} s")
        done, self._write = self._write, None
        result = done.result()
        if self._to_shm:
            self._report_shm(result)
        else:
            self._report(result)
        return result

    def warn_skipped(self) -> None:
        """Report that a snapshot was due and not started, since the one before is still being written."""
        self._warn("snapshots are due faster than they can be written: one was skipped")

    def restore(self) -> RestoredSnapshot | None:
        """Load the latest snapshot that passes all checks, or None where there is none; the page shows the step.

        One that does not pass is quarantined, with a notice, and the one before it is tried. Raises
        StaleGenerationError where a newer attempt runs, and SnapshotError where the disk cannot be read, or where no
        snapshot can be loaded though there are some.
        """
        restored = self.latest()
        if restored is not None:
            reporter().resumed(restored.step)
        return restored

    def latest(self) -> RestoredSnapshot | None:
        """Load what ``restore`` does, without reporting it: for a training that rolls back while it runs."""
        return self._loader.load(self._shm)

    def best_score(self) -> SnapshotScore | None:
        """Score of the best snapshot on disk, on every rank; None where no snapshot has a score."""
        scores = self._disk.storage.scores() if self.is_coordinator else {}
        best = best_step(scores)
        return self._world.broadcast(None if best is None else scores[best])

    def discard_shm(self) -> None:
        """Free the shared memory of every machine: what is on disk is as recent."""
        if self._shm is not None and self._shm_root is not None and self._world.leads_node:
            shutil.rmtree(self._shm_root, ignore_errors=True)

    def _copy(self, shared_state: dict[str, Any], rank_state: dict[str, Any]) -> dict[str, Any]:
        """Copy what this rank writes, by file."""
        shared_state, shards = split_shards(shared_state)
        states: dict[str, Any] = {rank_file(self._world.rank): rank_state}
        if self.is_coordinator:
            states[MODEL] = shared_state
        if shards is not None:
            states[shard_file(self._world.rank)] = shards
        return self._staging.copy(states)

    def _validate(self, validator: Validator | None, files: dict[str, Any]) -> str | None:
        shared = (files.get(MODEL, {}), unflatten(files.get(shard_file(self._world.rank), {})))
        reasons = (validator(part) for part in shared) if validator is not None else ()
        return next((reason for reason in reasons if reason is not None), None)

    def _report(self, result: SaveResult) -> None:
        if result.saved:
            reporter().update_status(snapshot_step=result.step)
        if result.saved and result.differing:
            self._warn_differing(result.differing, result.step)
        elif result.saved:
            reporter().clear(self._notice)
            self._notice, self._differs_since = "", None
        else:
            reassurance = "" if result.invalid else ", training continues"
            self._warn(f"snapshot {result.step} not saved{reassurance}: {result.problem}")

    def _warn_differing(self, ranks: tuple[int, ...], step: int) -> None:
        """Report replicas that have silently trained different models, and what may be the reason."""
        self._differs_since = step if self._differs_since is None else self._differs_since
        who = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks, such as rank {ranks[0]},"
        self._warn(
            f"the weights of {who} differ from rank 0's since step {self._differs_since}, and a snapshot has only "
            "rank 0's: was the model trained without run.model or DistributedDataParallel?"
        )

    def _report_shm(self, result: SaveResult) -> None:
        if result.saved:
            reporter().update_status(memory_step=result.step)
            return
        if not result.invalid:
            self._shm = None
        self._warn(f"no snapshot in shared memory, restarts resume from the disk: {result.problem}")

    def _warn(self, notice: str) -> None:
        if self.is_coordinator and notice != self._notice:
            self._notice = notice
            reporter().warn(notice)


def _in_thread(write: Callable[[], SaveResult]) -> Future[SaveResult]:
    """Write in a thread that does not keep a failed process alive: its peers may never answer it."""
    future: Future[SaveResult] = Future()

    def work() -> None:
        try:
            future.set_result(write())
        except BaseException as error:  # noqa: BLE001  # whatever it is, ``wait`` raises it in the training thread
            future.set_exception(error)

    Thread(target=work, name="rekindle-snapshot", daemon=True).start()
    return future
