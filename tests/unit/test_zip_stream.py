import io
import os
import zipfile
from pathlib import Path

from rekindle_service.run_readers.zip_stream import Member, zip_stream


def unpacked(root: Path, members: list[Member], *, compress: bool = True) -> dict[str, bytes]:
    data = b"".join(zip_stream(root, members, compress=compress))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_files_come_out_as_they_went_in(tmp_path: Path) -> None:
    contents = {"a.log": b"", "b.log": b"x" * 1_000_000, "c.log": os.urandom(700_000)}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    members = [Member(f"logs/{name}", tmp_path / name) for name in contents]
    for compress in (True, False):
        assert unpacked(tmp_path, members, compress=compress) == {f"logs/{name}": contents[name] for name in contents}


def test_only_regular_files_that_exist_are_included_also_with_a_time_before_the_format_began(tmp_path: Path) -> None:
    root = tmp_path / "run"
    (root / "directory").mkdir(parents=True)
    (tmp_path / "secret").write_text("token")
    (root / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(root / "fifo")
    (root / "kept").write_text("kept")
    os.utime(root / "kept", (0, 0))
    names = ["link", "fifo", "directory", "absent", "kept"]
    assert unpacked(root, [Member(name, root / name) for name in names]) == {"kept": b"kept"}


def test_a_file_that_grows_meanwhile_is_cut_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "growing"
    path.write_bytes(b"a" * 600_000)
    parts = zip_stream(tmp_path, [Member("growing", path)], compress=False)
    data = next(parts)
    with path.open("ab") as file:
        file.write(b"b" * 600_000)
    data += b"".join(parts)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.read("growing") == b"a" * 600_000


def test_the_archive_is_handed_on_while_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(os.urandom(5_000_000))
    sizes = [len(part) for part in zip_stream(tmp_path, [Member("big", tmp_path / "big")], compress=False)]
    assert max(sizes) < 600_000
