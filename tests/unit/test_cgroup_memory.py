"""The memory that a scheduler's limit leaves, read from files as the kernel has them."""

from pathlib import Path

from rekindle.training.snapshots.shared_memory import free_in_cgroup


def group(root: Path, name: str, files: dict[str, str]) -> None:
    (root / name).mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (root / name / file).write_text(f"{text}\n")


def test_the_tightest_of_the_groups_above_counts_and_cached_files_are_free(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("0::/slurm/job_7/step_0\n")
    group(tmp_path, "slurm", {"memory.max": "max", "memory.current": "9000", "memory.stat": "inactive_file 0"})
    limited = {"memory.max": "5000", "memory.current": "3000", "memory.stat": "anon 1\ninactive_file 500"}
    group(tmp_path, "slurm/job_7", limited)
    group(tmp_path, "slurm/job_7/step_0", {**limited, "memory.max": "8000"})
    assert free_in_cgroup(tmp_path / "own", tmp_path) == 2500


def test_the_older_version_of_control_groups_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("9:name=systemd:/\n4:cpu,memory:/job\n0::/\n")
    files = {"memory.limit_in_bytes": "700", "memory.usage_in_bytes": "900", "memory.stat": "total_inactive_file 50"}
    group(tmp_path, "memory/job", files)
    assert free_in_cgroup(tmp_path / "own", tmp_path) == 0


def test_without_a_limit_or_without_groups_nothing_is_known(tmp_path: Path) -> None:
    assert free_in_cgroup(tmp_path / "missing", tmp_path) is None
    (tmp_path / "own").write_text("0::/../elsewhere\n")
    assert free_in_cgroup(tmp_path / "own", tmp_path) is None
