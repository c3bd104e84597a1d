"""What can be seen of a rank from outside without disturbing it: is it getting anywhere?"""

import http.client
import json
import os
import socket
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.identity import cpu_seconds, process_state
from rekindle.contract.layout import RankDir
from rekindle.contract.rank_records import RankStatus
from rekindle.contract.typed_record import read_record

_ANSWER_WITHIN = 1.0  # seconds; a rank that holds the GIL or is stopped may not answer


@dataclass(frozen=True, slots=True)
class Vitals:
    """One look at one rank."""

    rank: int
    step: int | None  # finished steps, where the script reports them
    phase: str | None
    output: int  # bytes written to stdout and stderr
    cpu: float  # seconds of processor time
    collectives: int | None  # last one begun, where torch's recorder answers
    state: str | None  # the kernel's letter: R, S, D, T, Z


def look_at(rank: int, pid: int, folder: RankDir) -> Vitals:
    """Never raises: what cannot be seen is None."""
    status = read_record(folder.status, RankStatus)
    return Vitals(
        rank=rank,
        step=None if status is None else status.step,
        phase=None if status is None else status.phase,
        output=_size(folder.log("stdout")) + _size(folder.log("stderr")),
        cpu=cpu_seconds(pid),
        collectives=last_collective(folder),
        state=process_state(pid),
    )


def last_collective(folder: RankDir) -> int | None:
    """Sequence number of the last collective that the rank has begun in the default group."""
    trace = ask(folder, "fr_trace_json?onlyactive=true")
    if trace is None:
        return None
    try:
        groups = json.loads(trace)["pg_status"]
        return max(int(group["last_enqueued_collective"]) for group in groups.values())
    except (ValueError, KeyError, TypeError):
        return None


def ask(folder: RankDir, handler: str) -> bytes | None:
    """The answer of torch's debug server in the rank, or None where none listens or it does not answer in time."""
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
            return connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        os.close(directory)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
