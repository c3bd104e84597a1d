"""Sending files of snapshots from node to node, over the process group of the ranks."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import torch
import torch.distributed as dist

from rekindle.contract.run_dir.snapshot_dir import SnapshotFile
from rekindle.training.process_group import World

_CHUNK = 4 << 20  # bytes of a message


@dataclass(frozen=True, slots=True)
class Transfer:
    """The file ``name``, from one rank to another one on another node."""

    name: str
    source: int
    target: int


def plan_transfers(
    nodes: Sequence[int], holders: Mapping[str, Sequence[int]], wanted: Sequence[Sequence[str]]
) -> list[Transfer]:
    """Plan what is sent, in which order, so that each node has every file that one of its ranks wants.

    ``nodes``: the node of each rank; ``holders``: the nodes that have each file; ``wanted``: the files that each
    rank wants. A node that has received a file passes it on, so no node sends it to all others. Raises KeyError,
    with its name, for a file that no node has.
    """
    sent: Counter[int] = Counter()  # by node
    passed_on: dict[str, list[int]] = {}  # the ranks that have received each file
    transfers = []
    for target, names in enumerate(wanted):
        for name in names:
            having = passed_on.setdefault(name, [])
            sources: dict[int, int | None] = {nodes[rank]: rank for rank in having}
            sources |= dict.fromkeys(holders.get(name, ()))
            if not sources:
                raise KeyError(name)
            if nodes[target] in sources:
                continue
            node = min(sources, key=lambda node: (sent[node], node))
            members = [rank for rank, own in enumerate(nodes) if own == node]
            receiver = sources[node]
            source = members[target % len(members)] if receiver is None else receiver
            transfers.append(Transfer(name, source, target))
            sent[node] += 1
            having.append(target)
    return transfers


@dataclass(slots=True)
class FileStream:
    """Files that are sent to, or received from, the rank ``peer``, front to back; they are verified on the way."""

    peer: int
    directory: Path
    files: Mapping[str, SnapshotFile]
    problem: str | None = None

    def read(self) -> Iterator[bytearray]:
        """Yield the messages to send; zeros replace what cannot be read: the peer expects as many, and notices."""
        for file, size in self._parts("r"):
            yield file.read(size)

    def write(self) -> Iterator[bytearray]:
        """Yield buffers that are to be filled before the next one is requested; what cannot be written is dropped."""
        for file, size in self._parts("w"):
            buffer = bytearray(size)
            yield buffer
            file.write(buffer)

    def _parts(self, mode: str) -> Iterator[tuple["_Verified", int]]:
        for name, record in self.files.items():
            with _Verified(self.directory / name, record, mode) as file:
                for start in range(0, record.bytes, _CHUNK):
                    yield file, min(_CHUNK, record.bytes - start)
            self.problem = self.problem or file.problem


def exchange(world: World, outgoing: Sequence[FileStream], incoming: Sequence[FileStream]) -> str | None:
    """Send and receive all at once; returns the first problem. Raises RuntimeError where another rank is lost.

    The ranks concerned must call it, with matching arguments, and nobody else may use ``world`` meanwhile.
    """
    sends = [(each.peer, each.read()) for each in outgoing]
    receives = [(each.peer, each.write()) for each in incoming]
    while sends or receives:
        pending = []
        for streams, start in ((receives, dist.irecv), (sends, dist.isend)):
            for stream in list(streams):
                peer, buffers = stream
                buffer = next(buffers, None)
                if buffer is None:
                    streams.remove(stream)
                else:
                    tensor = torch.frombuffer(buffer, dtype=torch.uint8)
                    pending.append((start(tensor, peer, group=world.control), tensor))
        for work, _ in pending:
            if work is not None:
                work.wait()
    return next((each.problem for each in (*outgoing, *incoming) if each.problem is not None), None)


class _Verified:
    """A file whose bytes are compared with its record when it is closed; its errors become its ``problem``."""

    def __init__(self, path: Path, record: SnapshotFile, mode: str) -> None:
        self.problem: str | None = None
        self._path, self._record, self._mode = path, record, mode
        self._file: FileIO | None = None
        self._digest = hashlib.sha256()

    def __enter__(self) -> "_Verified":
        try:
            self._file = FileIO(self._path, self._mode)
        except OSError as error:
            self.problem = str(error)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        if self.problem is None and self._digest.hexdigest() != self._record.sha256:
            self.problem = f"{self._path.name} fails its checksum"

    def read(self, size: int) -> bytearray:
        data = bytearray(size)
        try:
            if self._file is not None and self._file.readinto(data) != size:
                self.problem = self.problem or f"{self._path.name} is too short"
        except OSError as error:
            self.problem = self.problem or str(error)
        self._digest.update(data)
        return data

    def write(self, data: bytearray) -> None:
        self._digest.update(data)
        try:
            if self._file is not None and self._file.write(data) != len(data):
                self.problem = self.problem or f"{self._path.name} was written in part: the memory is full"
        except OSError as error:
            self.problem = self.problem or str(error)
