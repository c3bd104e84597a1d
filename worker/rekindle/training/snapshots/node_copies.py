"""Snapshots in the memory of several nodes: each keeps what its ranks save, and a copy of its neighbour's.

So a node that is lost takes nothing with it that another one does not have. To restore, what each has of a snapshot
is gathered where it is needed. The nodes form a ring in the order of their numbers, and each sends to the next.

``<job's directory in /dev/shm>/<generation>-n<node>/000000000040`` has a part of the files of a snapshot, and the
manifest of them all.
"""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from rekindle.contract.run_dir.snapshot_dir import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    BadSnapshotError,
    Manifest,
    read_void_attempt,
    step_name,
    step_of,
)
from rekindle.contract.safe_open import open_regular
from rekindle.training.process_group import World
from rekindle.training.snapshots.directory import SnapshotStorage, verify_files, write_manifest
from rekindle.training.snapshots.dtensor_io import KeyPath, ShardSlice, slices_of
from rekindle.training.snapshots.file_exchange import FileStream, Transfer, exchange, plan_transfers
from rekindle.training.snapshots.shared_memory import (
    SpaceRequest,
    check_free_space,
    ensure_private_dir,
    free_in_cgroup,
    request_space,
)
from rekindle.training.snapshots.writer import (
    PeerLostError,
    RankWrite,
    SaveResult,
    SnapshotError,
    SnapshotWriter,
    Staged,
    collective,
)


class LostPartError(Exception):
    """Raised on all ranks where no node has an intact copy of some file of the snapshot any more."""


@dataclass(slots=True)
class NodeCopy:
    """One snapshot in the memory of the nodes."""

    manifest: Manifest
    holders: dict[str, list[int]] = field(default_factory=dict)  # of each file, the nodes that have it

    @property
    def is_complete(self) -> bool:
        return all(self.holders.get(name) for name in self.manifest.files)


@dataclass(slots=True)
class NodeCopies:
    """Restores from the nodes' memory; all ranks call every method. ``storage`` is that of ``node_storage``."""

    world: World
    storage: SnapshotStorage
    job_id: str | None
    void: Path | None  # see ``read_void_attempt``
    _found: dict[bytes, list[Path]] = field(default_factory=dict)  # here: directories of each snapshot, by its manifest

    def offered(self) -> list[NodeCopy]:
        """List the snapshots of which the nodes together have every file, latest first; nothing is read yet."""
        own: list[tuple[bytes, list[str]]] = []
        self._found = self._scan()
        if self.world.leads_node:
            own = [(data, sorted(set(_names(directories)))) for data, directories in self._found.items()]
        copies: dict[bytes, NodeCopy] = {}
        for node, inventory in zip(self.world.nodes, self.world.gather(own), strict=True):
            for data, names in inventory:
                copy = copies.setdefault(data, NodeCopy(Manifest.parse(data)))
                for name in set(names) & set(copy.manifest.files):
                    copy.holders.setdefault(name, []).append(node)
        void = self.world.broadcast(0 if self.void is None else read_void_attempt(self.void))
        complete = [copy for copy in copies.values() if copy.is_complete and copy.manifest.attempt > void]
        return sorted(complete, key=lambda copy: (copy.manifest.step, copy.manifest.created_at), reverse=True)

    def key(self, copy: NodeCopy) -> Path:
        """Path that stands for the directory of ``copy``, which is on several nodes."""
        return self.storage.root.parent / copy.manifest.generation / step_name(copy.manifest.step)

    def collect(self, copy: NodeCopy, names: Sequence[str]) -> Path:
        """Gather the verified files ``names`` of ``copy`` in a directory of this node, with those of its other ranks.

        Raises LostPartError where a file is intact on no node, on all ranks; RuntimeError where a rank is lost.
        """
        target = self._prepare(copy)
        for _ in range(1 + sum(map(len, copy.holders.values()))):
            wanted = self._divide(self.world.gather([name for name in names if not (target / name).exists()]))
            if not any(wanted):
                return target
            try:
                transfers = plan_transfers(self.world.nodes, copy.holders, wanted)
            except KeyError as error:
                raise LostPartError(f"no node has {error.args[0]} intact") from error
            self._drop(copy, self._fetch(copy, wanted[self.world.rank], transfers))
        raise LostPartError("its files cannot be gathered")

    def slices(self, copy: NodeCopy, names: Sequence[str]) -> dict[str, dict[KeyPath, ShardSlice]]:
        """Read which part of which tensor each of the shard files ``names`` has, where it is.

        Raises LostPartError where one can be read nowhere, on all ranks.
        """
        found: dict[str, dict[KeyPath, ShardSlice]] = {}
        while missing := [name for name in names if name not in found]:
            own: dict[str, dict[KeyPath, ShardSlice]] = {}
            bad: list[tuple[str, int]] = []
            for name in missing:
                if not copy.holders[name]:
                    raise LostPartError(f"no node has {name} intact")
                if self.world.leads_node and copy.holders[name][0] == self.world.node:
                    try:
                        own[name] = slices_of(torch.load(self._path(copy, name), mmap=True, weights_only=True))
                    except Exception:  # noqa: BLE001  # whatever a damaged file leads to
                        bad.append((name, self.world.node))
            found |= {name: each for part in self.world.gather(own) for name, each in part.items()}
            self._drop(copy, bad)
        return found

    def discard(self, manifest: Manifest) -> None:
        """Delete what ``collect`` has gathered, once all ranks have read it."""
        self.world.barrier()
        if self.world.leads_node:
            self.storage.discard(manifest.step)
        self.world.barrier()

    def _prepare(self, copy: NodeCopy) -> Path:
        """Make the directory to gather in. Where that fails, nothing can be put there, which is noticed then."""
        target = self.storage.temporary(copy.manifest.step)
        if self.world.leads_node:
            with suppress(OSError):
                ensure_private_dir(self.storage.root.parent)
                ensure_private_dir(self.storage.root)
                target.mkdir(mode=0o700, exist_ok=True)
        self.world.barrier()
        return target

    def _divide(self, wanted: Sequence[Sequence[str]]) -> list[list[str]]:
        """Leave each file to one rank of a node: the first one that wants it."""
        seen: set[tuple[int, str]] = set()
        divided: list[list[str]] = []
        for node, names in zip(self.world.nodes, wanted, strict=True):
            divided.append([name for name in names if (node, name) not in seen])
            seen.update((node, name) for name in names)
        return divided

    def _drop(self, copy: NodeCopy, bad: list[tuple[str, int]]) -> None:
        """Forget files that some rank has found damaged, and the node that has them."""
        for found in self.world.gather(bad):
            for name, node in found:
                if node in copy.holders[name]:
                    copy.holders[name].remove(node)

    def _scan(self) -> dict[bytes, list[Path]]:
        found: dict[bytes, list[Path]] = {}
        with suppress(OSError):
            ensure_private_dir(self.storage.root.parent)
            for entry in os.scandir(self.storage.root.parent):
                for directory in Path(entry.path).iterdir() if entry.is_dir(follow_symlinks=False) else ():
                    with suppress(OSError, BadSnapshotError):
                        data = _manifest(directory, self.job_id).encoded()
                        found.setdefault(data, []).append(directory)
        return found

    def _path(self, copy: NodeCopy, name: str) -> Path:
        """Find a file of this node. Raises FileNotFoundError."""
        for directory in self._found.get(copy.manifest.encoded(), []):
            if (directory / name).exists():
                return directory / name
        raise FileNotFoundError(name)

    def _fetch(self, copy: NodeCopy, wanted: Sequence[str], transfers: Sequence[Transfer]) -> list[tuple[str, int]]:
        """Link what is here, send and receive the rest; returns the files that are not intact, and where."""
        target, rank = self.storage.temporary(copy.manifest.step), self.world.rank
        received = {each.name for each in transfers if each.target == rank}
        here = [name for name in wanted if name not in received]
        bad = [(name, self.world.node) for name in here if not self._link(copy, name, target)]
        for each in transfers:
            files = {each.name: copy.manifest.files[each.name]}
            if each.source == rank:
                path = self._source(copy, each.name, target)
                exchange(self.world, [FileStream(each.target, path.parent, files)], [])
            elif each.target == rank and exchange(self.world, [], [FileStream(each.source, target, files)]):
                (target / each.name).unlink(missing_ok=True)
                bad.append((each.name, self.world.nodes[each.source]))
        return bad

    def _source(self, copy: NodeCopy, name: str, target: Path) -> Path:
        """Find a file to be sent: this node's own, or what it has received before. It need not exist."""
        with suppress(OSError):
            return self._path(copy, name)
        return target / name

    def _link(self, copy: NodeCopy, name: str, target: Path) -> bool:
        """Verify a file of this node and put it into ``target``; false where it is not intact."""
        try:
            path = self._path(copy, name)
            verify_files(path.parent, {name: copy.manifest.files[name]})
            os.link(path, target / name)
        except (OSError, BadSnapshotError):
            return False
        return True


def _manifest(directory: Path, job_id: str | None) -> Manifest:
    """Read a manifest. Raises OSError or BadSnapshotError where ``directory`` is no snapshot of this job."""
    with open_regular(directory / MANIFEST) as file:
        manifest = Manifest.parse(file.read(MAX_MANIFEST_BYTES))
    if manifest.step != step_of(directory.name) or manifest.job_id != job_id:
        raise BadSnapshotError(f"{directory} is not a snapshot of this job")
    return manifest


def _names(directories: Sequence[Path]) -> Iterator[str]:
    for directory in directories:
        with suppress(OSError):
            yield from (entry.name for entry in directory.iterdir())


def node_storage(directory: Path, generation: str, node: int) -> SnapshotStorage:
    """Storage of one node's part. The number is for nodes that share ``/dev/shm``, as in a test."""
    return SnapshotStorage(directory / f"{generation}-n{node}", generation)


@dataclass(slots=True)
class NodeCopyWriter(SnapshotWriter):
    """Writes to the nodes' memory; ``storage`` is that of ``node_storage``, another one on each node."""

    in_shm: bool = True
    void: Path | None = None  # the file of ``read_void_attempt``, where there is a keeper to write it
    _committed: Manifest | None = None  # rank 0's, of the latest

    def _write_and_commit(self, staged: Staged) -> SaveResult | SnapshotError | None:
        """Write and send this rank's files; then rank 0 decides, each node publishes, and the older ones are deleted.

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
        """Explain a lack of space on any node, each of which needs it for its ranks' files and its neighbour's."""
        requests = collective(self.world.gather, self._request_space(size))
        nodes = list(self.world.node_leaders)
        for index, node in enumerate(nodes):
            own, sent = self._of_node(requests, node), self._of_node(requests, nodes[index - 1])
            files = own if len(nodes) == 1 else own + [replace(each, free=own[0].free) for each in sent]
            if (lack := check_free_space(self.storage.root.parent, files)) is not None:
                return f"on node {node}, {lack}"
        return None

    def _request_space(self, size: int) -> SpaceRequest:
        """Request space, within the memory limit that a scheduler sets for each job: copies count as the job's own."""
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
        outgoing = [FileStream(self._target(self.world.rank), directory, writes[self.world.rank].files)]
        sources = [rank for rank in range(self.world.size) if self._target(rank) == self.world.rank]
        incoming = [FileStream(rank, directory, writes[rank].files) for rank in sources]
        try:
            if len(self.world.node_leaders) == 1:
                return self._read_back(step, writes[self.world.rank])
            return exchange(self.world, outgoing, incoming)
        except RuntimeError as error:
            raise PeerLostError(str(error)) from error

    def _target(self, rank: int) -> int:
        """Rank of the next node that keeps a copy of what ``rank`` saves."""
        nodes, ranks = list(self.world.node_leaders), self.world.nodes
        following = nodes[(nodes.index(ranks[rank]) + 1) % len(nodes)]
        members = [each for each, node in enumerate(ranks) if node == following]
        index = ranks[:rank].count(ranks[rank])
        return members[index % len(members)]

    def _read_back(self, step: int, own: RankWrite) -> str | None:
        try:
            verify_files(self.storage.temporary(step), own.files)
        except Exception as error:  # noqa: BLE001  # it must be reported, whatever it is
            return f"read back after writing, {error}"
        return None

    def _commit(self, staged: Staged, writes: list[RankWrite]) -> None:
        """Decide to commit: the nodes publish what they have. Rank 0 only."""
        self.check_fence()
        self._committed = self._manifest(staged, writes)

    def _publish(self, manifest: Manifest) -> str | None:
        """Publish this node's part, or return why not; called by all ranks, and done by the first of each node."""
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
        """Delete what this node has of earlier snapshots and attempts."""
        if not self.world.leads_node:
            return
        self.storage.prune(self.keep_last)
        self.storage.clean_leftovers()
        for entry in os.scandir(self.storage.root.parent):
            if not entry.name.startswith(f"{self.storage.generation}-"):
                shutil.rmtree(entry.path, ignore_errors=True)
