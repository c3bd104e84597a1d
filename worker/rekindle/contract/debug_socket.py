"""Questions to torch's debug server in a rank, over the socket in its folder."""

import http.client
import json
import os
import socket
from contextlib import closing
from dataclasses import dataclass

from rekindle.contract.run_dir.paths import RankDir

_ANSWER_WITHIN = 1.0  # seconds; a rank that holds the GIL or is stopped may not answer
_LONGEST_ANSWER = 64 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Collectives:
    """Where a rank is in the order of its collectives."""

    begun: int  # sequence number of the last one, in the group that has begun most
    in_all: int  # begun in all its groups together; not for comparing ranks, whose groups may differ
    unfinished: bool  # it stands in one


def collectives(folder: RankDir) -> Collectives | None:
    """What torch's recorder in the rank tells, where it answers and a group has been made."""
    trace = ask(folder, "fr_trace_json?onlyactive=true")
    if trace is None:
        return None
    try:
        told = json.loads(trace)
        begun = [max(int(group["last_enqueued_collective"]), 0) for group in told["pg_status"].values()]
        unfinished = any(not entry["retired"] for entry in told.get("entries", ()))
        return Collectives(max(begun), sum(begun), unfinished) if begun else None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return None  # a script may put anything where the socket was


def last_collective(folder: RankDir) -> int | None:
    """Sequence number of the last collective that the rank has begun, where that is told."""
    told = collectives(folder)
    return None if told is None else told.begun


def ask(folder: RankDir, handler: str) -> bytes | None:
    """The answer of the rank's debug server, or None where none listens or it does not answer in time."""
    try:
        directory = os.open(folder.root, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        with closing(http.client.HTTPConnection("rank", timeout=_ANSWER_WITHIN)) as connection:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(_ANSWER_WITHIN)
            # Through /proc: a socket's own path may have 107 bytes at most, a run directory's may be longer.
            connection.sock.connect(f"/proc/self/fd/{directory}/{folder.debug_socket.name}")
            connection.request("POST", f"/handler/{handler}")
            return connection.getresponse().read(_LONGEST_ANSWER)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        os.close(directory)
