"""Sending files of snapshots from node to node, over the process group of the ranks."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
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
    problem: str | None = None  # the first one

    def buffers(self, *, sends: bool) -> Iterator[bytearray]:
        """Yield what to send, or buffers that are to be filled before the next one is requested.

        Zeros replace what cannot be read: the peer expects as many bytes, and notices. What cannot be written is
        dropped.
        """
        for name, record in self.files.items():
            digest = hashlib.sha256()
            with self._open(name, "r" if sends else "w") as file:
                for start in range(0, record.bytes, _CHUNK):
                    buffer = bytearray(min(_CHUNK, record.bytes - start))
                    if sends:
                        self._move(name, file, buffer, sends=True)
                    yield buffer
                    if not sends:
                        self._move(name, file, buffer, sends=False)
                    digest.update(buffer)
            if digest.hexdigest() != record.sha256:
                self._note(f"{name} fails its checksum")

    def _open(self, name: str, mode: str) -> AbstractContextManager[FileIO | None]:
        try:
            return FileIO(self.directory / name, mode)
        except OSError as error:
            self._note(str(error))
            return nullcontext()

    def _move(self, name: str, file: FileIO | None, buffer: bytearray, *, sends: bool) -> None:
        """Read or write all of ``buffer``."""
        try:
            if file is not None and (file.readinto(buffer) if sends else file.write(buffer)) != len(buffer):
                self._note(f"{name} is too short" if sends else f"{name} was written in part: the memory is full")
        except OSError as error:
            self._note(str(error))

    def _note(self, problem: str) -> None:
        self.problem = self.problem or problem


def exchange(world: World, outgoing: Sequence[FileStream], incoming: Sequence[FileStream]) -> str | None:
    """Send and receive all at once; returns the first problem. Raises RuntimeError where another rank is lost.

    The ranks concerned must call it, with matching arguments, and nobody else may use ``world`` meanwhile.
    """
    sends = [(each.peer, each.buffers(sends=True)) for each in outgoing]
    receives = [(each.peer, each.buffers(sends=False)) for each in incoming]
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
