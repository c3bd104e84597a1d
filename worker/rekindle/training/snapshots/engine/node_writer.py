"""Snapshots in the memory of several nodes: each keeps what its ranks save, and a copy of its neighbour's.

So a node that is lost takes nothing with it that another one does not have. The nodes form a ring in the order
of their numbers, and each sends to the next.

``<job's directory in /dev/shm>/<generation>-n<node>/000000000040`` has a part of the files of a snapshot, and the
manifest of them all.
"""

import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from rekindle.contract.run_dir.snapshots import Manifest
from rekindle.training.snapshots.engine.cgroup_memory import free_in_cgroup
from rekindle.training.snapshots.engine.file_exchange import Incoming, Outgoing, exchange
from rekindle.training.snapshots.engine.shm import SpaceRequest, check_free_space, ensure_private_dir, request_space
from rekindle.training.snapshots.engine.writer import (
    PeerLostError,
    RankWrite,
    SaveResult,
    SnapshotError,
    SnapshotWriter,
    Staged,
    collective,
)
from rekindle.training.snapshots.storage.directory import SnapshotStorage, verify_files, write_manifest


def node_storage(directory: Path, generation: str, node: int) -> SnapshotStorage:
    """Where one node keeps its part. The number is for nodes that share ``/dev/shm``, as in a test."""
    return SnapshotStorage(directory / f"{generation}-n{node}", generation)


@dataclass(slots=True)
class NodeCopyWriter(SnapshotWriter):
    """``storage`` is that of ``node_storage``, another one on each node."""

    in_shm: bool = True
    void: Path | None = None  # the file of ``read_void_attempt``, where there is a keeper to write it
    _committed: Manifest | None = None  # rank 0's, of the latest

    def _write_and_commit(self, staged: Staged) -> SaveResult | SnapshotError | None:
        """Each rank writes and sends its files; then rank 0 decides, each node publishes, and the older ones go.

        A node that is lost before all have published leaves an older snapshot whole on all others.
        """
        started = time.monotonic()
        lack = self._lack_of_space(staged.bytes)
        own = self._write(staged) if lack is None else RankWrite(problem=lack)
        writes = collective(self.world.gather, own)
        problems = collective(self.world.gather, self._copy(staged.step, writes))
        writes = [
            replace(write, problem=write.problem or problem) for write, problem in zip(writes, problems, strict=True)
        ]
        concluded = self._commit_or_discard(staged, writes, started) if self.world.rank == 0 else None
        result, manifest = collective(self.world.broadcast, (concluded, self._committed))
        if isinstance(result, SaveResult) and result.saved and manifest is not None:
            failed = [each for each in collective(self.world.gather, self._publish(manifest)) if each is not None]
            if not failed:
                self._remove_older()
                return result
            result = SaveResult(staged.step, failed[0])
        if self.world.leads_node:
            self.storage.discard(staged.step)
        return result

    def _lack_of_space(self, size: int) -> str | None:
        """On any of the nodes, each of which needs space for its ranks' files and its neighbour's."""
        requests = collective(self.world.gather, self._request_space(size))
        nodes = list(self.world.node_leaders)
        for index, node in enumerate(nodes):
            own, sent = self._of_node(requests, node), self._of_node(requests, nodes[index - 1])
            files = own if len(nodes) == 1 else own + [replace(each, free=own[0].free) for each in sent]
            if (lack := check_free_space(self.storage.root.parent, files)) is not None:
                return f"on node {node}, {lack}"
        return None

    def _request_space(self, size: int) -> SpaceRequest:
        """A scheduler limits the memory of each job, and copies count as the job's own."""
        try:
            ensure_private_dir(self.storage.root.parent)
        except OSError as error:
            return SpaceRequest(size, problem=str(error))
        found, limit = request_space(self.storage.root, size), free_in_cgroup()
        return found if limit is None else replace(found, free=min(found.free, limit))

    def _of_node(self, requests: list[SpaceRequest], node: int) -> list[SpaceRequest]:
        return [request for request, own in zip(requests, self.world.nodes, strict=True) if own == node]

    def _copy(self, step: int, writes: list[RankWrite]) -> str | None:
        """Send this rank's files to the next node and keep those of the one before; what is sent is read back.

        Returns why the snapshot must not be kept. All ranks must call it, and none raises: the others would wait.
        """
        if any(write.error or write.invalid or write.problem for write in writes):
            return None  # the same on all ranks
        directory = self.storage.temporary(step)
        outgoing = [Outgoing(self._target(self.world.rank), directory, writes[self.world.rank].files)]
        sources = [rank for rank in range(self.world.size) if self._target(rank) == self.world.rank]
        incoming = [Incoming(rank, directory, writes[rank].files) for rank in sources]
        try:
            if len(self.world.node_leaders) == 1:
                return self._read_back(step, writes[self.world.rank])
            return exchange(self.world, outgoing, incoming)
        except RuntimeError as error:
            raise PeerLostError(str(error)) from error

    def _target(self, rank: int) -> int:
        """The rank of the next node that keeps a copy of what ``rank`` saves."""
        nodes, ranks = list(self.world.node_leaders), self.world.nodes
        following = nodes[(nodes.index(ranks[rank]) + 1) % len(nodes)]
        members = [each for each, node in enumerate(ranks) if node == following]
        index = ranks[:rank].count(ranks[rank])
        return members[index % len(members)]

    def _read_back(self, step: int, own: RankWrite) -> str | None:
        manifest = Manifest(None, step, None, self.world.size, 0.0, "", "", own.files)
        try:
            verify_files(self.storage.temporary(step), manifest, list(own.files))
        except Exception as error:  # noqa: BLE001  # it must be reported, whatever it is
            return f"read back after writing, {error}"
        return None

    def _commit(self, staged: Staged, writes: list[RankWrite]) -> None:
        """Only the decision: the nodes publish what they have. Rank 0 only."""
        self.check_fence()
        self._committed = self._manifest(staged, writes)

    def _publish(self, manifest: Manifest) -> str | None:
        """Returns why this node has not; called by all ranks, and done by the first of each node."""
        if not self.world.leads_node:
            return None
        try:
            self.check_fence()
            write_manifest(self.storage.temporary(manifest.step), manifest)
            self.storage.publish(manifest.step)
        except (OSError, SnapshotError) as error:
            return f"on node {self.world.node}, {error}"
        return None

    def _remove_older(self) -> None:
        """What this node has of earlier snapshots and attempts."""
        if not self.world.leads_node:
            return
        self.storage.prune(self.keep_last)
        self.storage.clean_leftovers()
        for entry in os.scandir(self.storage.root.parent):
            if not entry.name.startswith(f"{self.storage.generation}-"):
                shutil.rmtree(entry.path, ignore_errors=True)
