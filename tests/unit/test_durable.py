import errno
import json
import os
import stat
import threading

import pytest

from rekindle.contract.files import (
    append_line,
    atomic_write,
    check_free_space,
    has_free_space,
    read_json,
    read_lines,
    write_json,
)


def test_a_file_is_replaced_and_nothing_else_stays_in_its_directory(tmp_path):
    path = tmp_path / "file"
    for data in (b"old", b"new", b""):
        atomic_write(path, data)
        assert path.read_bytes() == data
        assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_reader_sees_the_old_bytes_or_the_new_ones(tmp_path):
    path = tmp_path / "file"
    documents = [b"a" * 100_000, b"b" * 50_000]
    atomic_write(path, documents[0])

    def rewrite():
        for document in documents * 50:
            atomic_write(path, document, durable=False)

    writer = threading.Thread(target=rewrite)
    writer.start()
    while writer.is_alive():
        assert path.read_bytes() in documents
    writer.join()


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "file"
    atomic_write(path, b"old")

    def full(_fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        atomic_write(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "file", {"loss": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_only_regular_files_of_json_are_read(tmp_path):
    (tmp_path / "real").write_text("1")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    found = {name: read_json(tmp_path / name) for name in ("real", "link", "fifo", "directory", "nothing")}
    assert found == {"real": 1, "link": None, "fifo": None, "directory": None, "nothing": None}
    for data in (b"", b"{", b"\xff\xfe", b'{"a": 1} {"b": 2}', b"[" * 100_000):
        (tmp_path / "file").write_bytes(data)
        assert read_json(tmp_path / "file") is None


def test_lines_are_read_in_order_with_the_offset_after_each(tmp_path):
    path = tmp_path / "lines"
    for number in range(3):
        append_line(path, {"number": number})
    lines = list(read_lines(path))
    assert [value["number"] for _, value in lines] == [0, 1, 2]
    assert lines[-1][0] == path.stat().st_size
    assert list(read_lines(path, lines[0][0])) == lines[1:]


def test_a_torn_last_line_is_not_read_and_cannot_swallow_the_next_one(tmp_path):
    path = tmp_path / "lines"
    append_line(path, {"number": 0})
    with path.open("ab") as file:
        file.write(b'{"number": 1')
    assert [value["number"] for _, value in read_lines(path)] == [0]
    append_line(path, {"number": 2})
    assert [value["number"] for _, value in read_lines(path)] == [0, 2]


def test_complete_lines_that_are_no_objects_are_skipped(tmp_path):
    path = tmp_path / "lines"
    for line in (b"", b"1", b"[]", b"null", b"\x00\xff", b"[" * 100_000):
        path.write_bytes(line + b"\n")
        append_line(path, {"number": 1})
        assert [value for _, value in read_lines(path)] == [{"number": 1}]


def test_an_append_to_a_full_disk_names_the_file(tmp_path, monkeypatch):
    path = tmp_path / "lines"
    append_line(path, {"number": 0})
    monkeypatch.setattr(os, "write", lambda _fd, _data: 3)
    with pytest.raises(OSError, match="only a part") as raised:
        append_line(path, {"number": 1})
    assert raised.value.filename == str(path)


def test_appended_text_of_every_kind_is_one_line(tmp_path):
    text = "a\nb\r\u2028\x00\ud800"
    append_line(tmp_path / "lines", {"text": text})
    assert (tmp_path / "lines").read_bytes().count(b"\n") == 1
    assert [json.dumps(value) for _, value in read_lines(tmp_path / "lines")] == [json.dumps({"text": text})]


def test_the_probe_of_free_space_leaves_nothing_behind_and_its_error_names_the_directory(tmp_path):
    assert has_free_space(tmp_path)
    assert list(tmp_path.iterdir()) == []
    missing = tmp_path / "missing"
    assert not has_free_space(missing)
    with pytest.raises(OSError, match=str(missing)):
        check_free_space(missing)
