"""Where a rank is, seen from outside: stacks of Python as faulthandler dumps them, and torch's record of collectives.

Torch's debug server in a rank answers queries over the socket in its directory.
"""

import http.client
import json
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from rekindle.contract.run_dir.paths import RankDir

_TIMEOUT = 1.0  # seconds; a rank that holds the GIL or is stopped may not answer
HOOKED_RECORDERS = ("nccl2", "nccl-lazy")
"""Backends of torch 2.15 each of which has a recorder of its own besides gloo's and that of the legacy NCCL."""
_RECORDERS = (
    "fr_trace_json?",  # gloo's
    *(f"fr_trace_json?backend={name}&" for name in HOOKED_RECORDERS),
    "dump_nccl_trace_json?",
)
EXCEPTIONS = "rekindle_exceptions"
"""Handler that a rank adds to the server: it answers with a clause about its exceptions, "" where there are none."""
_NONSENSE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""Exceptions of reading an answer: a script may put anything where the socket was."""
_MAX_ANSWER = 64 << 20  # bytes
_MAX_CLAUSE = 2000  # characters

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d{1,9}) in (?P<function>.*)$')
_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+")
_ENTRYPOINT = "rekindle/rank/entrypoint.py"
_HANDLERS = "rekindle/rank/handlers.py"
_COLLECTIVES = "torch/distributed/distributed_c10d.py"
_BACKWARD = re.compile(r"torch/autograd/(graph|__init__)\.py$")
_WAITING = re.compile(
    r"torch/distributed/(distributed_c10d|_functional_collectives|c10d_logger|rendezvous|nn/functional)\.py$"
)
_BUFFERS = "_distributed_broadcast_coalesced"  # by which DDP sends the buffers, from C++
_SYNCHRONIZE = re.compile(r"torch/(cuda|accelerator)/(__init__|streams)\.py$")
_WAITS_FOR_GPU = re.compile(r"\.(item|tolist|cpu|to|numpy|synchronize)\(|\b(float|int|bool|print)\(|^\s*(if|while)\b")
_INNERMOST = 6  # frames among which a collective is, where one is waited for


@dataclass(frozen=True, slots=True)
class Collectives:
    """Where a rank is in the order of its collectives, by torch's flight recorders."""

    last_enqueued: int | None  # number of the last one, in the group that has enqueued most; None without a group
    total_enqueued: int  # in all its groups together; not for comparing ranks, whose groups may differ
    in_flight: bool  # one of them has not completed
    knows_gpu: bool = False  # a recorder of NCCL has answered, so that a group of it would be among them


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective that a rank has enqueued; send and receive are none."""

    group: str  # name of its process group, "0" for the default one; with its backend where that is not gloo
    number: int  # in its group, from 1
    operation: str  # "all_reduce"
    shape: str  # of its inputs and their element types: "[[3, 2]] Float"
    completed: bool = field(default=False, compare=False)  # on this rank, as far as known

    @property
    def in_default_group(self) -> bool:
        return self.group.partition(" ")[0] == "0"


def parse_history(*dumps: bytes | None) -> list[Collective]:
    """The latest collectives of a rank in the order in which they were enqueued, by the dumps of its recorders.

    What is no dump counts for nothing.
    """
    parsed = filter(None, map(_parse, dumps))
    entries = [entry for _, recorded in parsed for entry in recorded if not entry["is_p2p"]]
    with suppress(*_NONSENSE):
        return list(dict.fromkeys(map(_collective, sorted(entries, key=lambda entry: entry["time_created_ns"]))))
    return []


def _parse(dump: bytes | None) -> tuple[list[int], list[dict[str, Any]]] | None:
    """Read a dump: the number of the last collective of each group that the recorder knows, and its entries."""
    with suppress(*_NONSENSE):
        answer = json.loads(dump or b"")
        enqueued = [max(int(group["last_enqueued_collective"]), 0) for group in answer.get("pg_status", {}).values()]
        return enqueued, [_typed(entry) for entry in answer.get("entries", ())]
    return None


def _typed(entry: dict[str, Any]) -> dict[str, Any]:
    flags = {name: bool(entry.get(name)) for name in ("is_p2p", "retired")}
    return {**entry, **flags, "time_created_ns": int(entry.get("time_created_ns", 0))}


def _collective(entry: dict[str, Any]) -> Collective:
    backend, _, operation = str(entry["profiling_name"]).rpartition(":")
    group = str(entry["process_group"][0])[:100]
    uneven = ("scatter" in operation and "reduce" not in operation) or "to_all" in operation  # by design
    shape = "" if uneven else f"{entry['input_sizes']} {' '.join(map(str, entry['input_dtypes']))}"
    return Collective(
        group if backend in ("gloo", "") else f"{group} ({backend[:20]})",
        int(entry["collective_seq_id"]),
        operation[:100],
        shape[:200].strip(),
        bool(entry.get("retired")),
    )


def collectives(rank_dir: RankDir, *, on_gpu: bool = False) -> Collectives | None:
    """What the flight recorders of a rank hold; None where they do not answer.

    ``on_gpu``: ask those of NCCL as well.
    """
    first, *others = _dumps(rank_dir, "onlyactive=true", on_gpu=on_gpu)
    if (parsed := _parse(first)) is None:
        return None
    known, entries = parsed
    created = {entry["time_created_ns"] for entry in entries}
    knows_gpu = False
    for enqueued, more in filter(None, map(_parse, others)):
        if created.isdisjoint(entry["time_created_ns"] for entry in more):  # else gloo's: torch before 2.15 knows one
            known, entries, knows_gpu = known + enqueued, entries + more, True
    in_flight = any(not entry["retired"] for entry in entries)
    return Collectives(max(known, default=None), sum(known), in_flight, knows_gpu)


def collective_history(rank_dir: RankDir, *, on_gpu: bool = False) -> list[Collective] | None:
    """The latest collectives of a rank that runs; None where it does not answer."""
    dumps = list(_dumps(rank_dir, "", on_gpu=on_gpu))
    return None if dumps[0] is None else parse_history(*dumps)


def rank_exceptions(rank_dir: RankDir) -> str:
    """Clause such as ``rank 1 is handling ValueError: … (train.py:12)``; empty without any, or for a silent rank."""
    with suppress(*_NONSENSE):
        return str(json.loads(query(rank_dir, EXCEPTIONS) or b"")["exceptions"])[:_MAX_CLAUSE]
    return ""


def last_collective(rank_dir: RankDir, *, on_gpu: bool = False) -> int | None:
    """Sequence number of the last collective that the rank has enqueued, where it is known."""
    found = collectives(rank_dir, on_gpu=on_gpu)
    return None if found is None else found.last_enqueued


def _dumps(rank_dir: RankDir, parameters: str, *, on_gpu: bool) -> Iterator[bytes | None]:
    """Query gloo's recorder, and the others with ``on_gpu``; a rank that does not answer is queried only once."""
    for recorder in _RECORDERS if on_gpu else _RECORDERS[:1]:
        yield (dump := query(rank_dir, recorder + parameters))
        if dump is None:
            return


def query(rank_dir: RankDir, handler: str) -> bytes | None:
    """The answer of the rank's debug server, or None where none listens or it does not answer in time."""
    with suppress(OSError, http.client.HTTPException):
        directory = os.open(rank_dir.root, os.O_PATH | os.O_DIRECTORY)
        try:
            with closing(http.client.HTTPConnection("rank", timeout=_TIMEOUT)) as connection:
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.settimeout(_TIMEOUT)
                # Through /proc: a socket's own path may have 107 bytes at most, a run directory's may be longer.
                connection.sock.connect(f"/proc/self/fd/{directory}/{rank_dir.debug_socket.name}")
                connection.request("POST", f"/handler/{handler}")
                return connection.getresponse().read(_MAX_ANSWER)
        finally:
            os.close(directory)
    return None


@dataclass(frozen=True, slots=True)
class Frame:
    """One level of a Python stack."""

    file: str
    line: int
    function: str


def main_stack(dump: str) -> list[Frame]:
    """The main thread's frames of the last dump of faulthandler in ``dump``, innermost first, down to the script's."""
    threads: list[list[Frame]] = []
    for text in dump.splitlines():
        if _THREAD.match(text):
            threads.append([])
        elif threads and (match := _FRAME.match(text)):
            threads[-1].append(Frame(match["file"], int(match["line"]), match["function"]))
    frames = threads[-1] if threads else []
    wrapper = [index for index, frame in enumerate(frames) if frame.file.endswith(_ENTRYPOINT)]
    return frames[: wrapper[0]] if wrapper else frames


def crash_dump(text: str) -> str | None:
    """What faulthandler wrote into ``text`` when the process crashed; None where it did not."""
    _, fatal, dump = text.rpartition("Fatal Python error: ")
    return fatal + dump if fatal else None


def crashed_stack(dump: str) -> list[Frame]:
    """The frames of the thread that has crashed, innermost first, down to the script's."""
    before, current, thread = dump.rpartition("Current thread 0x")
    frames = main_stack((current + thread).partition("\n\n")[0]) if current else main_stack(before)
    return [frame for frame in frames if not frame.file.endswith(_HANDLERS)]


def called_collective(frames: Sequence[Frame]) -> str | None:
    """The collective of torch.distributed that has not returned, such as ``all_reduce``; None outside of one."""
    calls = [frame.function for frame in frames[:_INNERMOST] if frame.file.endswith(_COLLECTIVES)]
    return calls[0] if calls else None


def waits_for_peers(frames: Sequence[Frame]) -> bool:
    """True where the innermost frames are inside a collective, or in a backward pass that ends in one."""
    innermost = frames[:_INNERMOST]
    if innermost and innermost[0].function == _BUFFERS:
        return True
    return any(_WAITING.search(frame.file) or _BACKWARD.search(frame.file) for frame in innermost)


def waits_for_gpu(frames: Sequence[Frame], source_line: str) -> bool:
    """True where the innermost frame may wait for the work of a GPU; ``source_line``: its line of the source.

    The calls that wait are not Python, and have no frame of their own.
    """
    in_torch = bool(frames) and frames[0].function == "synchronize" and bool(_SYNCHRONIZE.search(frames[0].file))
    return in_torch or bool(_WAITS_FOR_GPU.search(source_line))
