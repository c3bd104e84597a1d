"""A port for what cannot take any free one itself."""

import socket
from contextlib import suppress
from pathlib import Path
from random import SystemRandom

_LOWEST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """Free on loopback, and below the range of which the kernel gives connections one: none takes it meanwhile."""
    first = int(_RANGE.read_text().split()[0])
    while True:
        port = SystemRandom().randrange(_LOWEST, max(first, _LOWEST + 1000))
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
