"""Hosts with an address of their own each, on one machine: network namespaces that a switch connects.

The switch is a namespace, too: nothing is left in the machine's own when the processes that hold them have ended, and
these end with the test.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

_NEEDS = "network namespaces need root and the commands unshare, nsenter, ip and ss"
can_make_hosts = os.geteuid() == 0 and all(map(shutil.which, ("unshare", "nsenter", "ip", "ss")))
needs_hosts = pytest.mark.skipif(not can_make_hosts, reason=_NEEDS)


class Namespace:
    """Held by a process that ends with its standard input."""

    def __init__(self, holder: "subprocess.Popen[bytes]") -> None:
        assert holder.stdin is not None
        assert holder.stdout is not None
        self.pid = holder.pid
        holder.stdin.write(b"\n")
        holder.stdin.flush()
        if holder.stdout.readline() != b"\n":  # it answers from within
            pytest.skip(_NEEDS)

    def command(self, *words: object) -> list[str]:
        """What runs ``words`` there."""
        return ["nsenter", "-t", str(self.pid), "--net", "--uts", "--", *map(str, words)]

    def listeners(self) -> list[tuple[str, int, str]]:
        """Address, port and process name of all that listens there."""
        listing = subprocess.run(
            self.command("ss", "-tnlpH"), capture_output=True, text=True, check=True, timeout=60
        ).stdout
        found = re.findall(r'^LISTEN +\d+ +\d+ +(\S+):(\d+) .*?(?:"([^"]*)".*)?$', listing, re.MULTILINE)
        return [(address, int(port), name) for address, port, name in found]

    def run(self, *words: object) -> None:
        subprocess.run(self.command(*words), check=True, timeout=60)


class Host(Namespace):
    """One machine, as far as the network goes."""

    address: str
    link: str  # at the switch


@contextmanager
def network_hosts(number: int, network: str = "10.82.0") -> Iterator[tuple[Namespace, list[Host]]]:
    """The switch, and hosts 1 to ``number`` of it."""
    with ExitStack() as stack:
        switch = Namespace(_hold(stack))
        switch.run("ip", "link", "add", "switch", "type", "bridge")
        switch.run("ip", "link", "set", "switch", "up")
        hosts = []
        for index in range(1, number + 1):
            host = Host(_hold(stack))
            host.address, host.link = f"{network}.{index}", f"host{index}"
            _connect(switch, host)
            hosts.append(host)
        yield switch, hosts


def _hold(stack: ExitStack) -> "subprocess.Popen[bytes]":
    holder = subprocess.Popen(["unshare", "--net", "--uts", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return stack.enter_context(holder)


def _connect(switch: Namespace, host: Host) -> None:
    switch.run("ip", "link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", host.pid)
    switch.run("ip", "link", "set", host.link, "master", "switch", "up")
    host.run("hostname", host.link)
    host.run("ip", "link", "set", "lo", "up")
    host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
    host.run("ip", "link", "set", "eth0", "up")
