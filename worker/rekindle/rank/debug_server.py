"""Torch's debug server in a rank: it answers from a thread of its own, also while a collective blocks the script."""

import os
import sys

from rekindle.contract.run_dir.paths import RankDir

_servers: list[object] = []  # kept for the life of the process: a collected server says so on stderr


def open_debug_server(rank_dir: RankDir) -> None:
    """Listen on ``RankDir.debug_socket``, readable by this user only. Nothing where torch is not loaded yet.

    A fresh interpreter (a cold attempt) goes without: torch must not be imported before the script has set what torch
    reads at import. Called before the rank's output is captured, since the server announces itself on stderr.
    """
    if "torch" not in sys.modules:
        return
    from torch._C._distributed_c10d import _WorkerServer

    folder = os.open(rank_dir.root, os.O_PATH | os.O_DIRECTORY)
    before = os.umask(0o177)
    try:
        # Through /proc: a socket's own path may have 107 bytes at most, a run directory's may be longer.
        _servers.append(_WorkerServer(f"/proc/self/fd/{folder}/{rank_dir.debug_socket.name}", -1))
    finally:
        os.umask(before)
