"""Bytes that nobody has written on purpose, read by what reads archives, manifests, journals, metrics and logs."""

import io
import json
import math
import os
import stat
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from job_examples import a_job
from rekindle.contract.run_dir.journal import RecordType, read_journal
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import RankDone, RankError, RankStatus
from rekindle.contract.run_dir.snapshot_dir import MODEL, BadSnapshotError, Manifest
from rekindle.contract.states import JobState
from rekindle_service.api.routes.history_routes import attempts_public
from rekindle_service.api.routes.job_routes import job_public
from rekindle_service.jobs.packaging.unpack import Limits, UnpackingError, extract
from rekindle_service.run_readers.lanes import read_usage
from rekindle_service.run_readers.log_files import last_line, read_chunk, tail_offset
from rekindle_service.run_readers.metric_series import read_attempt_latest, read_metric_lines, read_series
from rekindle_service.sanitize import strip_control
from rekindle_service.store.projection import project
from rekindle_service.store.tables import Job
from snapshot_files import write_snapshot

fuzz = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

_LIMITS = Limits(bytes=50_000, entries=10, cpu_seconds=5)
_NAMES = st.sampled_from(
    ["a", "a/b", "../a", "/abs", "a/../../b", ".", "..", "", "a//b", "a\0b", "\ud800", "é", "a" * 300, "a/" * 200,
     "C:\\a", "-rf", "a\nb", "link", "link/x"]
)  # fmt: skip
_TYPES = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE,
                          tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.GNUTYPE_SPARSE, b"Z"])  # fmt: skip
_MEMBERS = st.lists(
    st.tuples(_NAMES, _TYPES, _NAMES, st.integers(0, 0o7777), st.binary(max_size=50)), min_size=1, max_size=6
)
_FLIPS = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=4)


def _tar(members: list[tuple[str, bytes, str, int, bytes]]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT, errors="surrogatepass") as tar:
        for name, kind, link, mode, content in members:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.mode = kind, link, mode
            entry.size = len(content) if kind == tarfile.REGTYPE else 0
            with suppress(ValueError, UnicodeError):
                tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _zip(members: list[tuple[str, bytes, str, int, bytes]]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, kind, _, mode, content in members:
            with suppress(ValueError, UnicodeError):
                entry = zipfile.ZipInfo(name or "x")
                entry.create_system = 3
                entry.external_attr = ((stat.S_IFLNK if kind == tarfile.SYMTYPE else stat.S_IFREG) | mode) << 16
                zipped.writestr(entry, content)
    return packed.getvalue()


def _flipped(data: bytes, flips: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for position, value in flips:
        if changed:
            changed[position % len(changed)] ^= value
    return bytes(changed)


@fuzz
@pytest.mark.parametrize("pack", [_tar, _zip])
@given(members=_MEMBERS, flips=_FLIPS)
@example(members=[("a", tarfile.SYMTYPE, "../a", 0, b"../a")], flips=[])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_of_any_bytes_leaves_nothing_that_leads_out_of_its_directory(
    tmp_path_factory: pytest.TempPathFactory, pack, members, flips
) -> None:
    root = tmp_path_factory.mktemp("unpack")
    archive, target = root / "archive", root / "inner" / "target"
    target.parent.mkdir()
    archive.write_bytes(_flipped(pack(members), flips))
    with suppress(UnpackingError):
        extract(archive, target, _LIMITS)
    assert {path.name for path in root.iterdir()} == {"archive", "inner"}
    assert {path.name for path in (root / "inner").iterdir()} <= {"target"}
    for path in (Path(parent, name) for parent, *names in os.walk(target) for name in [*names[0], *names[1]]):
        mode = path.lstat().st_mode
        assert stat.S_ISREG(mode) or stat.S_ISDIR(mode) or Path(os.path.realpath(path)).is_relative_to(target)
        assert not stat.S_ISREG(mode) or not mode & (stat.S_ISUID | stat.S_ISGID)
        assert path.lstat().st_size <= _LIMITS.bytes


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return (write_snapshot(tmp_path_factory.mktemp("snapshots"), 40, world_size=2) / "manifest.json").read_bytes()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from([10**30, -1, 1 << 63, "../../etc/passwd", MODEL, "rank-0.pt"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@fuzz
@given(data=st.data())
def test_a_manifest_is_refused_or_names_only_files_of_its_directory(manifest: bytes, data: st.DataObject) -> None:
    fields = json.loads(manifest)
    changes = data.draw(st.dictionaries(st.sampled_from(sorted(fields)), _JSON, max_size=3))
    text = data.draw(st.sampled_from([
        json.dumps({**fields, **changes}).encode(), _flipped(manifest, data.draw(_FLIPS)),
        data.draw(st.binary(max_size=99)),
    ]))  # fmt: skip
    with suppress(BadSnapshotError):
        accepted = Manifest.parse(text)
        assert all("/" not in name and name not in (".", "..") for name in accepted.files)
        assert accepted.size >= 0


@fuzz
@given(value=_JSON, cls=st.sampled_from([RankStatus, RankDone, RankError]))
def test_a_rank_record_is_refused_or_can_be_shown(value: object, cls: type) -> None:
    with suppress(ValueError):
        json.dumps(cls.from_json(value).to_json(), allow_nan=False)


_RECORD = st.builds(
    lambda kind, fields: json.dumps({"type": kind, "at": 1, **fields}),
    st.sampled_from([*RecordType, "unknown"]),
    st.dictionaries(
        st.sampled_from(["attempt", "run", "rank", "step", "outcome", "ranks", "state", "reason", "devices", "at",
                         "next_try_at", "world_size", "fault", "last_step", "snapshot_step", "share", "keeper"]),
        st.sampled_from([0, 1, 2, 65536, 1e18, "failed", "kill", None, [], ["cpu:0"], {"class": "oom", "message": "m"},
                         {"class": "oom", "message": "m", "evidence": {"a": [1]}}]) | _JSON,
    ),
)  # fmt: skip


@fuzz
@given(lines=st.lists(_RECORD | st.text(max_size=20), max_size=8), flips=_FLIPS)
def test_a_journal_of_any_bytes_gives_rows_that_can_be_shown(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], flips: list[tuple[int, int]]
) -> None:
    run_dir = RunDir(tmp_path_factory.mktemp("run"))
    run_dir.journal.write_bytes(_flipped("\n".join([*lines, ""]).encode(errors="surrogatepass"), flips))
    job = a_job(state=JobState.STARTING, run=1)
    changes = project(job, [], read_journal(run_dir.journal))
    if changes is not None:
        shown = Job(**{**job.model_dump(), "spec": job.spec, **changes.columns})
        job_public(shown).model_dump_json()
        for attempt in attempts_public(list(changes.attempts.values())):
            attempt.model_dump_json()


@fuzz
@given(data=st.lists(st.binary(max_size=60) | _JSON.map(lambda value: json.dumps(value).encode()), max_size=6))
def test_metrics_and_usage_of_any_bytes_are_finite_or_skipped(
    tmp_path_factory: pytest.TempPathFactory, data: list[bytes]
) -> None:
    run_dir = RunDir(tmp_path_factory.mktemp("run"))
    path = run_dir.attempt(1).rank(0).metrics
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\n".join([*data, b'{"step": 1, "epoch": null, "at": 1, "values": {"x": 1}}', b""]))
    lines = list(read_metric_lines(run_dir.root, path, 0))
    assert all(value is None or math.isfinite(value) for line in lines for value in line.values.values())
    assert "x" in read_series(run_dir.root, path, names=None, max_points=10)
    assert "x" in read_attempt_latest(run_dir, 1)
    list(read_usage(run_dir.root, path))


@fuzz
@given(data=st.binary(max_size=300), limit=st.integers(1, 40), lines=st.integers(0, 5))
def test_a_log_of_any_bytes_is_read_to_its_end_as_harmless_text(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, limit: int, lines: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "stdout.log"
    path.write_bytes(data + b"\n")
    with path.open("rb") as file:
        offset, text = 0, ""
        while (chunk := read_chunk(file, offset, limit)).next_offset > offset:
            offset, text = chunk.next_offset, text + chunk.text
        assert (offset, len(text.encode())) == (len(data) + 1, len(data) + 1)
        assert 0 <= tail_offset(file, lines, limit) <= len(data) + 1
        shown = strip_control(data.decode(errors="replace")) + (last_line(file) or "")
    assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(shown)
