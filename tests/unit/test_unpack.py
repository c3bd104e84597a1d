"""Archives of code: what is unpacked, and what never is."""

import gzip
import io
import os
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rekindle_service.jobs.packaging.code_copy import pack_code
from rekindle_service.jobs.packaging.ignore_rules import CopyOptions
from rekindle_service.jobs.packaging.unpack import Limits, UnpackingError, extract, unpack

Unpacked = Callable[[bytes], Path]
LIMITS = Limits(bytes=100_000, entries=20, cpu_seconds=2)


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    one = tarfile.TarInfo(name)
    one.type, one.linkname, one.mode = kind, link, mode
    return one


def tar_of(*entries: tarfile.TarInfo, content: bytes = b"x") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for one in entries:
            one.size = len(content) if one.isreg() else 0
            tar.addfile(one, io.BytesIO(content))
    return packed.getvalue()


def zip_of(*names: str, content: bytes = b"x", mode: int = 0o644, kind: int = stat.S_IFREG) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in names:
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = 3, (kind | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            zipped.writestr(info, content)
    return packed.getvalue()


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpacked:
    """Unpack in this process, which checks what an archive holds."""
    return partial(_unpacked, tmp_path, extract)


@pytest.fixture
def by_child(tmp_path: Path) -> Unpacked:
    """Unpack as the server does, with limits on memory and time."""
    return partial(_unpacked, tmp_path, unpack)


def _unpacked(root: Path, method: Callable[[Path, Path, Limits], None], archive: bytes) -> Path:
    (root / "archive").write_bytes(archive)
    (root / "inner").mkdir(exist_ok=True)
    method(root / "archive", root / "inner" / "code", LIMITS)
    return root / "inner" / "code"


def names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_files_directories_and_inner_links_of_a_tar_are_unpacked(unpacked: Unpacked) -> None:
    code = unpacked(
        tar_of(
            entry(".", tarfile.DIRTYPE),
            entry("./alias.py", tarfile.SYMTYPE, link="pkg/train.py"),
            entry("./pkg", tarfile.DIRTYPE),
            entry("./pkg/train.py", mode=0o4777),
        )
    )
    assert names(code) == ["alias.py", "pkg", "pkg/train.py"]
    assert (code / "alias.py").read_text() == "x"
    assert stat.S_IMODE((code / "pkg/train.py").stat().st_mode) == 0o700


def test_a_zip_is_unpacked_with_its_executables(unpacked: Unpacked) -> None:
    code = unpacked(zip_of("pkg/tool.sh", mode=0o755))
    assert os.access(code / "pkg/tool.sh", os.X_OK)


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/out", "a/../b", "n" * 300, "d/" * 600 + "f"])
@pytest.mark.parametrize("pack", [lambda name: tar_of(entry(name)), zip_of], ids=["tar", "zip"])
def test_a_name_that_leads_out_or_cannot_be_one_is_refused(
    unpacked: Unpacked, tmp_path: Path, pack: Callable[[str], bytes], name: str
) -> None:
    with pytest.raises(UnpackingError, match="names"):
        unpacked(pack(name))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "inner"]
    assert names(tmp_path / "inner") == ["code"]


@pytest.mark.parametrize(
    "links",
    [
        {"a": "/etc/passwd"},
        {"a": "../../archive"},
        {"d/e/b": "../..", "d/e/a": "b/.."},  # each looks harmless alone
        {"loop": "loop/../../.."},
        {"up": "..", "up/planted": "x"},
        {"up": "../..", "up/new/planted": "x"},
        {"up": "{outside}", "up/new/planted": "x"},
        {"b": "c/..", "b/d": "x"},  # harmless, but no directory
        {"d/e/file/x": "y"},
    ],
)
def test_a_link_that_leads_out_or_nowhere_is_refused_and_nothing_is_made_through_it(
    unpacked: Unpacked, tmp_path: Path, links: dict[str, str]
) -> None:
    texts = {name: text.replace("{outside}", str(tmp_path)) for name, text in links.items()}
    entries = [entry(name, tarfile.SYMTYPE, link=text) for name, text in texts.items()]
    with pytest.raises(UnpackingError):
        unpacked(tar_of(entry("d/e/file"), *entries))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "inner"]
    assert names(tmp_path / "inner")[0] == "code"


def test_no_file_is_written_through_a_link(unpacked: Unpacked, tmp_path: Path) -> None:
    with pytest.raises(UnpackingError, match="link out of itself"):
        unpacked(tar_of(entry("a", tarfile.SYMTYPE, link=str(tmp_path)), entry("a/planted")))
    assert not (tmp_path / "planted").exists()


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.LNKTYPE])
def test_devices_fifos_and_hard_links_are_refused(by_child: Unpacked, kind: bytes) -> None:
    with pytest.raises(UnpackingError, match="files, directories and links alone"):
        by_child(tar_of(entry("train.py"), entry("b", kind, link="train.py")))


def test_a_device_in_a_zip_is_refused(unpacked: Unpacked) -> None:
    with pytest.raises(UnpackingError, match="files, directories and links alone"):
        unpacked(zip_of("dev", kind=stat.S_IFCHR))


@pytest.mark.parametrize(
    "pack", [lambda content: tar_of(entry("f"), content=content), lambda c: zip_of("f", content=c)]
)
def test_what_grows_beyond_the_limit_is_refused_and_hardly_written(
    by_child: Unpacked, tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    bomb = pack(bytes(50_000_000))
    assert len(bomb) < LIMITS.bytes
    with pytest.raises(UnpackingError, match="MB when unpacked"):
        by_child(bomb)
    written = sum(path.stat().st_size for path in (tmp_path / "inner").rglob("*") if path.is_file())
    assert written <= LIMITS.bytes


def test_a_bomb_in_the_long_name_of_an_entry_is_refused(by_child: Unpacked) -> None:
    long = entry("x", tarfile.GNUTYPE_LONGNAME)
    long.size = 2_000_000_000
    bomb = gzip.compress(long.tobuf(tarfile.GNU_FORMAT)) + gzip.compress(bytes(50_000_000)) * 40
    with pytest.raises(UnpackingError, match="MB of memory"):
        by_child(bomb)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_header_that_takes_forever_to_read_is_refused(by_child: Unpacked, kind: bytes) -> None:
    described = entry("x", kind)
    described.size = 400_000
    with pytest.raises(UnpackingError):
        by_child(gzip.compress(described.tobuf(tarfile.USTAR_FORMAT) + b"1" * 400_000 + bytes(1024)))


def test_an_entry_that_is_described_again_and_again_is_refused(by_child: Unpacked) -> None:
    described = entry("x", tarfile.XGLTYPE).tobuf(tarfile.USTAR_FORMAT)
    with pytest.raises(UnpackingError):
        by_child(gzip.compress(described * 20_000 + entry("f").tobuf() + bytes(1024)))


@pytest.mark.parametrize(
    "pax", [{"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}, None], ids=["map in the content", "map in the header"]
)
def test_a_file_with_holes_is_refused(unpacked: Unpacked, pax: dict[str, str] | None) -> None:
    sparse = entry("f", tarfile.REGTYPE if pax else tarfile.GNUTYPE_SPARSE)
    sparse.pax_headers = pax or {}
    with pytest.raises(UnpackingError):
        unpacked(tar_of(sparse, content=b"1" * 10_000))


def test_long_names_with_attributes_of_their_own_are_taken(unpacked: Unpacked) -> None:
    long = entry("d/" * 100 + "f" * 200)
    long.pax_headers = {"comment": "c" * 2000}
    assert len(names(unpacked(tar_of(long)))[-1]) == 400


@pytest.mark.parametrize("pack", [lambda names: tar_of(*map(entry, names)), lambda names: zip_of(*names)])
def test_too_many_entries_are_refused(by_child: Unpacked, pack: Callable[[list[str]], bytes]) -> None:
    with pytest.raises(UnpackingError, match="at most 20 entries"):
        by_child(pack([f"f{number}" for number in range(21)]))


def test_a_zip_with_a_table_of_contents_that_fills_the_memory_is_refused(
    by_child: Unpacked,
) -> None:
    archive = zip_of("f")
    start = archive.rindex(b"PK\x01\x02")
    one, end = archive[start : archive.rindex(b"PK\x05\x06")], bytearray(archive[-22:])
    end[12:16] = (len(one) * 4_000_000).to_bytes(4, "little")
    with pytest.raises(UnpackingError):
        by_child(archive[:start] + one * 4_000_000 + bytes(end))


@pytest.mark.parametrize(
    "archive", [tar_of(), zip_of(), tar_of(entry(".", tarfile.DIRTYPE))], ids=["tar", "zip", "dot"]
)
def test_an_empty_archive_is_refused(by_child: Unpacked, archive: bytes) -> None:
    with pytest.raises(UnpackingError, match="must hold a file"):
        by_child(archive)


@pytest.mark.parametrize("archive", [tar_of(entry("a"), content=os.urandom(5000)), zip_of("a", content=b"y" * 5000)])
def test_no_cut_or_flipped_byte_passes_for_another_archive(unpacked: Unpacked, tmp_path: Path, archive: bytes) -> None:
    for cut in range(0, len(archive) - 1, 97):
        with pytest.raises(UnpackingError):
            unpack_again(unpacked, tmp_path, archive[:cut])
    flipped = bytearray(archive)
    flipped[len(archive) // 3] ^= 0x55
    with pytest.raises(UnpackingError):
        unpack_again(unpacked, tmp_path, bytes(flipped))


def unpack_again(unpacked: Unpacked, tmp_path: Path, archive: bytes) -> None:
    if (tmp_path / "inner" / "code").exists():
        (tmp_path / "inner" / "code").rename(tmp_path / "inner" / f"old-{len(names(tmp_path))}")
    unpacked(archive)


def beginning_too_early() -> bytes:
    """A zip whose table of contents places a file before its beginning."""
    packed = bytearray(zip_of("train.py"))
    struct.pack_into("<I", packed, len(packed) - 6, 1000 + struct.unpack_from("<I", packed, len(packed) - 6)[0])
    return bytes(packed)


@pytest.mark.parametrize("content", [b"", b"P", b"hello world", b"\x1f\x8b", b"PK\x05\x06", beginning_too_early()])
def test_what_is_no_archive_is_refused(unpacked: Unpacked, content: bytes) -> None:
    with pytest.raises(UnpackingError, match=r"must be a (whole )?tar\.gz or zip"):
        unpacked(content)


def test_the_same_directory_is_always_packed_into_the_same_bytes_and_unpacked_as_it_was(
    by_child: Unpacked, tmp_path: Path
) -> None:
    directory = tmp_path / "source"
    for part in ("b", "a/deep", ".git", "__pycache__"):
        (directory / part).mkdir(parents=True)
        (directory / part / "train.py").write_text(part)
    (directory / "link").symlink_to(directory / "a")
    (directory / "tool").write_text("#!/bin/sh\n")
    (directory / "tool").chmod(0o755)
    os.mkfifo(directory / "fifo")
    first, second = io.BytesIO(), io.BytesIO()
    packed = pack_code(directory, first, exclude=tmp_path / "home", options=CopyOptions())
    os.utime(directory / "tool", (1, 1))
    pack_code(directory, second, exclude=tmp_path / "home", options=CopyOptions())
    assert first.getvalue() == second.getvalue()
    assert len(packed.files) == 3
    code = by_child(first.getvalue())
    assert names(code) == ["a", "a/deep", "a/deep/train.py", "b", "b/train.py", "link", "tool"]
    assert (code / "link/deep/train.py").read_text() == "a/deep"
    assert os.access(code / "tool", os.X_OK)
