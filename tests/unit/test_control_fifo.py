"""Messages to the keeper: sent without ever waiting, read in order, and ignored where they are invalid."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rekindle.contract.run_dir.control_messages import (
    MAX_MESSAGE_BYTES,
    ControlMessage,
    Fault,
    MessageType,
    notify,
    parse_message,
    post_request,
)
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.event_loop import ControlFifo

INTENT = ControlMessage(MessageType.INTENT)


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


@pytest.fixture
def fifo(run_dir: RunDir) -> Iterator[ControlFifo]:
    fifo = ControlFifo(run_dir.control)
    yield fifo
    fifo.close()


def write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def test_messages_are_read_in_order_and_once(run_dir: RunDir, fifo: ControlFifo) -> None:
    sent = [
        ControlMessage(MessageType.RANK_EXITED, 1, pid=7, exit_code=3),
        ControlMessage(MessageType.SNAPSHOT_SKIPPED, 1, step=40, reason="checksum"),
        ControlMessage(MessageType.CHAOS, 1, 0, fault=Fault.KILL),
        INTENT,
    ]
    for message in sent:
        notify(run_dir, message)
    assert fifo.messages() == sent
    assert fifo.messages() == []


def test_a_message_in_two_chunks_is_one_and_a_line_without_end_is_not_kept(run_dir: RunDir, fifo: ControlFifo) -> None:
    line = b'{"type": "intent"}\n'
    write(run_dir.control, line[:4])
    assert fifo.messages() == []
    write(run_dir.control, line[4:])
    assert fifo.messages() == [INTENT]
    write(run_dir.control, b"x" * 60_000)
    assert fifo.messages() == []
    write(run_dir.control, b"\n")
    notify(run_dir, INTENT)
    assert fifo.messages() == [INTENT]


def test_a_message_that_nobody_reads_does_nothing(run_dir: RunDir) -> None:
    notify(run_dir, INTENT)
    assert not run_dir.control.exists()
    ControlFifo(run_dir.control).close()
    notify(run_dir, INTENT)


@pytest.mark.parametrize("make", [lambda path: path.write_text("x"), lambda path: path.symlink_to("nowhere")])
def test_what_is_in_the_fifos_position_is_replaced(run_dir: RunDir, make: Callable[[Path], object]) -> None:
    make(run_dir.control)
    fifo = ControlFifo(run_dir.control)
    notify(run_dir, INTENT)
    assert fifo.messages() == [INTENT]
    fifo.close()


def test_messages_for_an_earlier_keeper_are_not_read(run_dir: RunDir, fifo: ControlFifo) -> None:
    notify(run_dir, ControlMessage(MessageType.STACK, 1, 0))
    later = ControlFifo(run_dir.control)
    notify(run_dir, INTENT)
    assert later.messages() == [INTENT]
    later.close()


def test_an_invalid_line_is_ignored_and_hides_nothing_after_it(run_dir: RunDir, fifo: ControlFifo) -> None:
    for line in (b"", b"{", b"\x00\xff", b"[]", b"7", b"[" * 4000, b"x" * 10_000):
        write(run_dir.control, line + b"\n")
        notify(run_dir, INTENT)
        assert fifo.messages() == [INTENT]


def test_a_message_with_a_field_that_makes_no_sense_is_invalid() -> None:
    for value in (
        {"type": "no such"},
        {"attempt": 1},
        {"type": "stack", "attempt": 1, "rank": "0"},
        {"type": "stack", "attempt": True, "rank": 0},
        {"type": "resumed", "attempt": 1, "step": -1},
        {"type": "resumed", "attempt": 1, "step": 10**400},
        {"type": "resumed", "attempt": 1, "step": 1 << 54},
        {"type": "rank_exited", "attempt": 1, "pid": 7, "exit_code": 256},
        {"type": "rank_exited", "attempt": 1, "pid": 7, "signal": 0},
        {"type": "chaos", "attempt": 1, "fault": "no such"},
        {"type": "chaos", "attempt": 1, "fault": "kill", "rank": float("inf")},
        {"type": "chaos", "attempt": 1, "fault": "kill", "rank": {"a": []}},
    ):
        assert parse_message(json.dumps(value).encode()) is None, value


def test_a_full_fifo_makes_no_sender_wait(run_dir: RunDir, fifo: ControlFifo) -> None:
    message = ControlMessage(MessageType.SNAPSHOT_SKIPPED, 1, step=1, reason="x" * 100)
    for _ in range(3000):
        notify(run_dir, message)
    read = fifo.messages()
    assert 0 < len(read) < 3000
    assert set(read) == {message}, "none was truncated"


def test_a_message_longer_than_the_kernel_keeps_whole_is_rejected(run_dir: RunDir, fifo: ControlFifo) -> None:
    with pytest.raises(ValueError, match=f"at most {MAX_MESSAGE_BYTES} bytes"):
        notify(run_dir, ControlMessage(MessageType.SNAPSHOT_SKIPPED, 1, step=1, reason="x" * MAX_MESSAGE_BYTES))
    assert fifo.messages() == []


def test_each_node_of_a_cluster_has_a_fifo_of_its_own(run_dir: RunDir, fifo: ControlFifo) -> None:
    second = ControlFifo(run_dir.control_of(1))
    notify(run_dir, ControlMessage(MessageType.RANK_STARTED, 1, 2), node=1)
    assert second.messages() == [ControlMessage(MessageType.RANK_STARTED, 1, 2)]
    assert fifo.messages() == []
    second.close()
    notify(run_dir, ControlMessage(MessageType.RANK_STARTED, 1, 2), node=1)  # its keeper has gone
    assert fifo.messages() == []


def test_requests_for_a_keeper_elsewhere_are_lines_of_a_file(run_dir: RunDir) -> None:
    messages = [ControlMessage(MessageType.STACK, 3, rank) for rank in (0, 1)]
    for message in messages:
        post_request(run_dir, message)
    assert [parse_message(line) for line in run_dir.requests.read_bytes().splitlines()] == messages
