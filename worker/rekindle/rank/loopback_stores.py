"""Has the store that a script serves at a loopback address listen there only; torch's listens on all interfaces.

On a node of a cluster so does the store at any address of the node, such as MASTER_ADDR.
"""

import ipaddress
import os
import socket
from contextlib import suppress
from typing import Any

from rekindle.contract.environment import RankEnv

CLASS = "TCPStore"


def listen_on_loopback(rendezvous: Any) -> None:
    """Of groups that torch makes from now on; ``rendezvous`` is its module, which makes their stores."""
    make_store = getattr(rendezvous, CLASS)

    def make_on_loopback(*arguments: Any, **options: Any) -> Any:
        host, port = options.get("host_name"), options.get("port")
        serves = options.get("is_master") and host is not None and port is not None
        if serves and (listener := _loopback_listener(host, port)) is not None:
            options.update(port=listener.getsockname()[1], master_listen_fd=listener.detach())
        return make_store(*arguments, **options)

    setattr(rendezvous, CLASS, make_on_loopback)


def _loopback_listener(host: Any, port: Any) -> socket.socket | None:
    """At the address that clients try first; None where torch is to find out itself: what is not ours, or taken."""
    with suppress(OSError, ValueError):
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        ip, node = ipaddress.ip_address(address[0]), RankEnv.read(os.environ).node
        if ip.is_loopback or (node is not None and not ip.is_unspecified):
            listener = socket.socket(family)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
                listener.listen(4096)
            except OSError:
                listener.close()
                raise
            return listener
    return None
