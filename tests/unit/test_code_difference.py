from pathlib import Path

from rekindle.contract.files import write_json
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.jobs.packaging.code_manifest import differences, read_manifest, take_manifest


def job(root: Path, files: dict[str, bytes]) -> RunDir:
    run_dir = RunDir(root)
    root.mkdir()
    for name, data in files.items():
        (run_dir.code / name).parent.mkdir(parents=True, exist_ok=True)
        (run_dir.code / name).write_bytes(data)
    write_json(run_dir.code_manifest, take_manifest(run_dir.code).to_json())
    return run_dir


def test_equal_code_has_equal_digests_and_other_code_others(tmp_path: Path) -> None:
    files = {"train.py": b"print(1)\n", "lib/part.py": b""}
    one, same = job(tmp_path / "1", files), job(tmp_path / "2", files)
    moved = job(tmp_path / "3", {"train.py": b"print(1)\n", "part.py": b""})
    changed = job(tmp_path / "4", {**files, "train.py": b"print(2)\n"})
    digests = [read_manifest(run_dir).digest for run_dir in (one, same, moved, changed)]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    assert differences(one, same) == []


def test_changed_files_are_shown_line_by_line(tmp_path: Path) -> None:
    old = job(tmp_path / "1", {"train.py": b"a\nb\nc\n", "gone.py": b"", "data.bin": b"\x00\x01"})
    new = job(tmp_path / "2", {"train.py": b"a\nB\nc\n", "new.py": b"", "data.bin": b"\x00\x02"})
    found = differences(old, new)
    assert [(each.path, each.change) for each in found] == [
        ("data.bin", "changed"),
        ("gone.py", "removed"),
        ("new.py", "added"),
        ("train.py", "changed"),
    ]
    assert found[0].diff is None
    assert found[3].diff.splitlines()[2:] == ["@@ -1,3 +1,3 @@", " a", "-b", "+B", " c"]


def test_a_file_that_the_job_has_changed_or_replaced_by_a_link_is_not_shown_as_submitted(tmp_path: Path) -> None:
    old, new = job(tmp_path / "1", {"train.py": b"a\n"}), job(tmp_path / "2", {"train.py": b"b\n"})
    script = new.code / "train.py"
    script.write_bytes(b"written by a rank\n")
    assert [(each.path, each.diff) for each in differences(old, new)] == [("train.py", None)]
    (tmp_path / "secret").write_text("token\n")
    script.unlink()
    script.symlink_to(tmp_path / "secret")
    assert [(each.path, each.diff) for each in differences(old, new)] == [("train.py", None)]


def test_code_that_is_not_on_record_cannot_be_compared(tmp_path: Path) -> None:
    known, unknown = job(tmp_path / "1", {}), RunDir(tmp_path / "2")
    unknown.root.mkdir()
    assert differences(known, unknown) == []
    for damaged in (b"", b"[]", b'{"format": 2}', b'{"format": 1, "files": {"a": 3}}', b"[" * 100_000):
        unknown.code_manifest.write_bytes(damaged)
        assert read_manifest(unknown) is None
