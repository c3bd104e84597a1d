"""Queries to torch's debug server in a rank, over the socket in its directory."""

import http.client
import json
import os
import socket
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from rekindle.contract.run_dir.paths import RankDir

_TIMEOUT = 1.0  # seconds; a rank that holds the GIL or is stopped may not answer
_RECORDERS = ("fr_trace_json", "dump_nccl_trace_json")  # of gloo and others; of NCCL
_MAX_ANSWER = 64 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Collectives:
    """Where a rank is in the order of its collectives, by torch's flight recorder."""

    last_enqueued: int  # sequence number of the last one, in the process group that has enqueued most
    total_enqueued: int  # in all its groups together; not for comparing ranks, whose groups may differ
    in_flight: bool  # one of them has not completed


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective that a rank has enqueued; send and receive are none."""

    group: str  # name of its process group; "0" is the default one
    number: int  # in its group, from 1
    operation: str  # "all_reduce"
    shape: str  # of its inputs and their element types: "[[3, 2]] Float"


def parse_history(*dumps: bytes | None) -> list[Collective]:
    """The latest collectives of a rank in the order in which they were enqueued, by the dumps of its recorders.

    None where something else than a dump is given.
    """
    try:
        recorded = [each for dump in dumps if dump for each in json.loads(dump).get("entries", ())]
        entries = [each for each in recorded if not each["is_p2p"]]
        return [_collective(each) for each in sorted(entries, key=lambda each: int(each["time_created_ns"]))]
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return []  # a script may put anything there


def _collective(entry: dict[str, Any]) -> Collective:
    operation = str(entry["profiling_name"]).rpartition(":")[2]
    uneven = ("scatter" in operation and "reduce" not in operation) or "to_all" in operation  # by design
    shape = "" if uneven else f"{entry['input_sizes']} {' '.join(map(str, entry['input_dtypes']))}"
    number = int(entry["collective_seq_id"])
    return Collective(str(entry["process_group"][0])[:100], number, operation[:100], shape[:200].strip())


def collectives(rank_dir: RankDir) -> Collectives | None:
    """What the flight recorder of a rank holds; None where it does not answer or no group has been made."""
    try:
        answer = json.loads(query(rank_dir, "fr_trace_json?onlyactive=true") or b"")
        enqueued = [max(int(group["last_enqueued_collective"]), 0) for group in answer["pg_status"].values()]
        in_flight = any(not entry["retired"] for entry in answer.get("entries", ()))
        return Collectives(max(enqueued), sum(enqueued), in_flight) if enqueued else None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return None  # a script may put anything where the socket was


def collective_history(rank_dir: RankDir) -> list[Collective]:
    """The latest collectives of a rank that runs; none where it does not answer."""
    return parse_history(*(query(rank_dir, handler) for handler in _RECORDERS))


def last_collective(rank_dir: RankDir) -> int | None:
    """Sequence number of the last collective that the rank has enqueued, where it is known."""
    found = collectives(rank_dir)
    return None if found is None else found.last_enqueued


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
