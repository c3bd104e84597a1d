"""Whose connections make a process group untrustworthy."""

import socket
from pathlib import Path

import pytest

from rekindle.rank import gloo_peers
from rekindle.rank.gloo_peers import ForeignPeerError, _verify

NOBODY = 65534


def connected() -> tuple[socket.socket, socket.socket, socket.socket]:
    """A listener on loopback, and both ends of a connection to it."""
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    return listener, client, listener.accept()[0]


@pytest.mark.parametrize("may_be_gone", [True, False])
def test_a_connection_of_another_user_is_always_refused(monkeypatch: pytest.MonkeyPatch, may_be_gone: bool) -> None:
    monkeypatch.setattr(gloo_peers, "peer_uid", lambda _: NOBODY)
    listener, client, accepted = connected()
    with listener, client, accepted, pytest.raises(ForeignPeerError, match=f"user {NOBODY} of this machine"):
        _verify([listener.fileno(), accepted.fileno()], may_be_gone=may_be_gone)


def test_a_connection_that_nobody_has_any_more_is_refused_unless_nccl_takes_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gloo_peers, "peer_uid", lambda _: None)
    listener, client, accepted = connected()
    with listener, client, accepted:
        fds = [listener.fileno(), accepted.fileno()]
        _verify(fds, may_be_gone=True)
        with pytest.raises(ForeignPeerError, match="closed by peer"):
            _verify(fds, may_be_gone=False)


@pytest.mark.parametrize(
    ("backend", "driver", "alone"),
    [
        ("gloo", True, True),
        ("cpu:gloo", True, True),
        ("nccl", True, False),
        ("cpu:gloo,cuda:nccl", True, False),
        ("undefined", True, False),
        ("undefined", False, True),
    ],
)
def test_nccl_takes_part_where_there_is_a_driver_and_gloo_is_not_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str, driver: bool, alone: bool
) -> None:
    if driver:
        (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(gloo_peers, "_NVIDIA_DRIVER", tmp_path / "nvidiactl")
    assert gloo_peers._is_gloo_alone(backend) is alone
