"""Whose connections make a process group untrustworthy."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.rank import gloo_peers
from rekindle.rank.gloo_peers import ForeignPeerError, _verify

NOBODY = 65534


@pytest.fixture
def fds() -> Iterator[list[int]]:
    """A listener on loopback, and the accepted end of a connection to it."""
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
        yield [listener.fileno(), accepted.fileno()]


def test_a_connection_of_another_user_is_always_refused_and_one_of_nobody_unless_nccl_takes_part(
    monkeypatch: pytest.MonkeyPatch, fds: list[int]
) -> None:
    monkeypatch.setattr(gloo_peers, "peer_uid", lambda _: NOBODY)
    for may_be_gone in (True, False):
        with pytest.raises(ForeignPeerError, match=f"user {NOBODY} of this machine"):
            _verify(fds, may_be_gone=may_be_gone)
    monkeypatch.setattr(gloo_peers, "peer_uid", lambda _: None)
    _verify(fds, may_be_gone=True)
    with pytest.raises(ForeignPeerError, match="closed by peer"):
        _verify(fds, may_be_gone=False)


def test_nccl_takes_part_where_there_is_a_driver_and_gloo_is_not_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gloo_peers, "NVIDIA_DRIVER", tmp_path / "nvidiactl")
    assert gloo_peers._is_gloo_alone("undefined")
    (tmp_path / "nvidiactl").touch()
    alone = {"gloo": True, "cpu:gloo": True, "nccl": False, "cpu:gloo,cuda:nccl": False, "undefined": False}
    assert {backend: gloo_peers._is_gloo_alone(backend) for backend in alone} == alone
