"""Questions to torch's debug server in a rank, over the socket in its folder."""

import http.client
import json
import os
import socket
from contextlib import closing

from rekindle.contract.layout import RankDir

_ANSWER_WITHIN = 1.0  # seconds; a rank that holds the GIL or is stopped may not answer
_LONGEST_ANSWER = 64 << 20  # bytes


def last_collective(folder: RankDir) -> int | None:
    """Sequence number of the last collective that the rank has begun, where torch's recorder answers."""
    trace = ask(folder, "fr_trace_json?onlyactive=true")
    if trace is None:
        return None
    try:
        groups = json.loads(trace)["pg_status"]
        return max(int(group["last_enqueued_collective"]) for group in groups.values())
    except (ValueError, KeyError, TypeError):
        return None


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
