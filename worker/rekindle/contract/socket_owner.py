"""Which user is at the other end of a TCP connection within this machine, asked of the kernel.

The kernel answers to any user (sock_diag(7)), in one message, however many connections the machine has.
"""

import socket
import struct

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_ESTABLISHED, _ANY_STATE, _NO_COOKIE = 1, 0xFFFFFFFF, 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBxI 2s2s 16s16s I II")  # inet_diag_req_v2; ports and addresses in network order
_ANSWER = struct.Struct("=BBBB 2s2s 16s16s I II I I I I")  # inet_diag_msg, up to the user's id

Address = tuple[str, int]  # IPv4


def peer_uid(connection: socket.socket) -> int | None:
    """The user whose process holds the other end of ``connection``, which is IPv4; None where that is not open here.

    Raises OSError where the kernel does not answer, such as in a sandbox that forbids it.
    """
    return uid_of(connection.getpeername()[:2], connection.getsockname()[:2])


def uid_of(local: Address, remote: Address) -> int | None:
    """The user who owns the established connection that is ``local`` here and leads to ``remote``; None for none.

    A socket that is closed or only listens counts as none: the kernel may name the wrong user for it.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(5)
        request = _REQUEST.pack(
            socket.AF_INET, socket.IPPROTO_TCP, 0, _ANY_STATE, _port(local), _port(remote), _host(local), _host(remote),
            0, _NO_COOKIE, _NO_COOKIE,
        )  # fmt: skip
        size = _HEADER.size + len(request)
        kernel.sendto(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + request, (0, 0))
        answer = kernel.recv(4096)
    if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:  # an error message: there is no such socket
        return None
    _, state, _, _, local_port, remote_port, *_, uid = _ANSWER.unpack_from(answer, _HEADER.size)
    is_it = state == _ESTABLISHED and (local_port, remote_port) == (_port(local), _port(remote))
    return uid if is_it else None


def _port(address: Address) -> bytes:
    return address[1].to_bytes(2, "big")


def _host(address: Address) -> bytes:
    return socket.inet_aton(address[0]) + bytes(12)
