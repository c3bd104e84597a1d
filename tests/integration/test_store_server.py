"""The store of the ranks: who it serves, and the kernel's word on who somebody is."""

import os
import socket
import subprocess
import sys

import pytest

from e2e.waiting import until
from rekindle.contract.connection_owner import peer_uid, uid_of
from rekindle.contract.processes import process_state

NOBODY = 65534
_SERVE = """
import os, sys
from datetime import timedelta
from torch.distributed import TCPStore
from rekindle.keeper.torchrun import store_server
if "no-md5" in sys.argv:
    store_server._TCP_MD5SIG_EXT = 9999  # an option that no kernel has
port = store_server.start_store_server()
assert len(os.listdir("/proc/self/task")) == 1, "whoever forks the ranks stays single-threaded"
client = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=30))
client.set("large", "x" * 3_000_000)
assert len(client.get("large")) == 3_000_000
child = int(open("/proc/thread-self/children").read())
print(port, child, client.add("counter", 5), flush=True)
sys.stdin.read()
os._exit(0)
"""
_AS_NOBODY = """
import os, socket, sys
os.setresuid(65534, 65534, 65534)
connection = socket.socket()
connection.bind((sys.argv[1], 0))
connection.settimeout(2)
try:
    connection.connect((sys.argv[2], int(sys.argv[3])))
    print("connected", connection.recv(1) if sys.argv[4:] else connection.send(b"x"), flush=True)
except TimeoutError:
    print("no answer", flush=True)
sys.stdin.read()
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_nobody(*words: object) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", _AS_NOBODY, *map(str, words)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> str:
    with process:
        return process.communicate()[0].strip()


def serve(*words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", _SERVE, *words]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@needs_root
def test_the_kernel_names_the_user_of_a_connection_that_is_open_and_of_no_other():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as own, listener.accept()[0] as accepted:
            assert peer_uid(accepted) == peer_uid(own) == os.geteuid()
        foreign = as_nobody("127.0.0.9", "127.0.0.1", port)
        accepted, address = listener.accept()
        with accepted:
            assert accepted.recv(1) == b"x"
            assert peer_uid(accepted) == NOBODY
            assert "connected" in answer(foreign)
            assert peer_uid(accepted) is None, "its owner has gone"
        assert uid_of(("127.0.0.1", port), address) is None
        assert uid_of(("127.0.0.1", port), ("0.0.0.0", 0)) is None, "a listener is no connection"  # noqa: S104


@needs_root
def test_the_store_serves_its_own_user_and_ends_with_the_process_that_started_it():
    with serve() as agent:
        port, store, counter = map(int, agent.stdout.readline().split())
        assert counter == 5
        assert answer(as_nobody("127.0.0.9", "127.0.0.1", port, "read")) == "connected b''"
        for source in ("127.0.0.1", "127.0.0.2"):
            assert answer(as_nobody(source, "127.0.0.2", port)) == "no answer"
        agent.communicate()
    until(lambda: process_state(store) in (None, "Z"), "the store has ended with its agent")


def test_without_tcp_md5_the_store_is_on_loopback_and_says_who_can_reach_it():
    with serve("no-md5") as agent:
        assert agent.stdout.readline().split()[2] == "5"
        errors = agent.communicate()[1]
    assert "every user of this machine can reach the ranks' store at 127.0.0.1: [Errno " in errors
