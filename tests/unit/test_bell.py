import json
import os

import pytest

from rekindle.contract.run_dir.rank_records import MAX_MESSAGE_BYTES, notify
from rekindle.keeper.bell import ControlFifo


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bell"


@pytest.fixture
def bell(path):
    bell = ControlFifo(path)
    yield bell
    bell.close()


def write(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def test_what_is_rung_is_heard_in_order_and_once(path, bell):
    for number in range(3):
        notify(path, {"bell": "x", "number": number})
    assert [message["number"] for message in bell.messages()] == [0, 1, 2]
    assert bell.messages() == []


def test_ringing_where_nobody_listens_does_nothing(path):
    notify(path, {"bell": "x"})
    assert not path.exists()
    ControlFifo(path).close()
    notify(path, {"bell": "x"})


def test_what_was_rung_for_an_earlier_keeper_is_not_heard(path, bell):
    notify(path, {"bell": "old"})
    later = ControlFifo(path)
    notify(path, {"bell": "new"})
    assert later.messages() == [{"bell": "new"}]
    later.close()


def test_a_message_in_two_pieces_is_one_message(path, bell):
    line = json.dumps({"bell": "x"}).encode() + b"\n"
    write(path, line[:4])
    assert bell.messages() == []
    write(path, line[4:])
    assert bell.messages() == [{"bell": "x"}]


@pytest.mark.parametrize("line", [b"", b"{", b"\x00\xff", b"[]", b"7", b"[" * 4000, b"x" * 10_000])
def test_nonsense_is_passed_over_and_hides_nothing_behind_it(path, bell, line):
    write(path, line + b"\n")
    notify(path, {"bell": "x"})
    assert bell.messages() == [{"bell": "x"}]


def test_a_line_without_end_is_not_kept(path, bell):
    write(path, b"x" * 60_000)
    assert bell.messages() == []
    write(path, b"\n")
    notify(path, {"bell": "x"})
    assert bell.messages() == [{"bell": "x"}]


def test_a_full_fifo_makes_no_ringer_wait(path, bell):
    for _ in range(3000):
        notify(path, {"bell": "x" * 100})
    heard = bell.messages()
    assert 0 < len(heard) < 3000
    assert {len(message["bell"]) for message in heard} == {100}, "none was cut off"


def test_a_message_longer_than_the_kernel_keeps_whole_is_refused(path, bell):
    with pytest.raises(ValueError, match=f"at most {MAX_MESSAGE_BYTES} bytes"):
        notify(path, {"bell": "x" * MAX_MESSAGE_BYTES})
    assert bell.messages() == []


@pytest.mark.parametrize("make", [lambda path: path.write_text("x"), lambda path: path.symlink_to("nowhere")])
def test_what_lies_in_the_bells_place_gives_way(path, make):
    make(path)
    bell = ControlFifo(path)
    notify(path, {"bell": "x"})
    assert bell.messages() == [{"bell": "x"}]
    bell.close()
