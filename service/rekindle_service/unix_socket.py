"""The UNIX socket for users of this machine: the kernel says who has connected, so nobody needs a token."""

import errno
import grp
import os
import socket
import stat
import struct
from pathlib import Path

MAX_SOCKET_PATH = 100  # bytes; the kernel takes 107

_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


def listen_unix(path: Path, group: str | None = None) -> socket.socket:
    """A socket at ``path`` that listens, for the user of this process and root, or also for the members of ``group``.

    Replaces a socket that an earlier server has left, and nothing else. Raises OSError, and KeyError for an unknown
    group.
    """
    gid = None if group is None else grp.getgrnam(group).gr_gid
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o177)  # nobody else connects before the mode is set
    try:
        listener.bind(os.fspath(path))
        if gid is not None:
            os.chown(path, -1, gid)
            path.chmod(0o660)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(umask)
    return listener


def _remove_stale(path: Path) -> None:
    """Precondition: the caller owns the home, so no other server of it listens there."""
    if os.path.lexists(path):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "another file is there", str(path))
        path.unlink()


def peer_uid(connection: socket.socket) -> int | None:
    """The user whose process has connected, as the kernel knows it; None for a connection over the network."""
    if connection.family != socket.AF_UNIX:
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])
