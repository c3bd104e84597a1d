"""Each check of `rekindle doctor` returns a level and what to do."""

import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from rich.console import Console

from cli_examples import job
from doc_pages import ROOT
from rekindle_service.cli.background_server import running_server
from rekindle_service.cli.checks import (
    Finding,
    Level,
    at_least,
    job_checks,
    machine_checks,
    ok,
    problem,
    software_checks,
    warning,
)
from rekindle_service.cli.checks.software_checks import check_gpu, is_of_job
from rekindle_service.cli.commands.doctor import finding_lines, summary
from rekindle_service.client import discovery, transport
from rekindle_service.config.home import DELETED, Home

MOUNTS = """21 1 8:1 / / rw - ext4 /dev/sda1 rw
30 21 0:40 / /data rw shared:1 - nfs4 server:/data rw
31 30 0:41 / /data/fast\\040disk rw - xfs /dev/nvme0 rw
32 30 0:42 / /mnt/größe rw - nfs4 server:/home rw
"""


NOW = time.time()


def torch(version: str | None, error: str | None = None) -> Finding:
    return software_checks.check_package("torch", {"version": version, "error": error}, "python")


@pytest.mark.parametrize(
    ("check", "level"),
    [
        (lambda: at_least("x", 10, enough=10, minimum=5, detail="", advice="Add."), Level.OK),
        (lambda: at_least("x", 9, enough=10, minimum=5, detail="", advice="Add."), Level.WARNING),
        (lambda: at_least("x", 5, enough=10, minimum=5, detail="", advice="Add."), Level.WARNING),
        (lambda: at_least("x", 4, enough=10, minimum=5, detail="", advice="Add."), Level.PROBLEM),
        (lambda: torch("2.15.0+cpu"), Level.OK),
        (lambda: torch("2.11.0"), Level.OK),
        (lambda: torch("2.9.1"), Level.PROBLEM),
        (lambda: torch(None, "not installed"), Level.PROBLEM),
        (lambda: torch("2.15.0", "ImportError: libc10.so"), Level.PROBLEM),
        (
            lambda: software_checks.check_package("torchmetrics", {"version": None, "error": ""}, "python"),
            Level.WARNING,
        ),
        (lambda: software_checks.check_cuda({"built": None, "usable": 0}, present=0), Level.OK),
        (lambda: software_checks.check_cuda({"built": "13.0", "usable": 2}, present=2), Level.OK),
        (lambda: software_checks.check_cuda({"built": "13.0", "usable": 1}, present=2), Level.OK),
        (lambda: software_checks.check_cuda({"built": None, "usable": 0}, present=2), Level.PROBLEM),
        (lambda: machine_checks.loopback(), Level.OK),
        (lambda: machine_checks.loopback("192.0.2.1"), Level.PROBLEM),
        (lambda: machine_checks.host_name("localhost"), Level.OK),
        (lambda: machine_checks.write_speed(Path("/proc")), Level.PROBLEM),
        (lambda: machine_checks.check_filesystem("ext4"), Level.OK),
        (lambda: machine_checks.check_filesystem("xfs"), Level.OK),
        (lambda: machine_checks.check_filesystem("nfs4"), Level.PROBLEM),
        (lambda: machine_checks.shared_memory(Path("/nowhere/shm")), Level.WARNING),
        (lambda: machine_checks.open_files(-1), Level.OK),
        (lambda: machine_checks.open_files(65536), Level.OK),
        (lambda: machine_checks.open_files(512), Level.WARNING),
        (lambda: machine_checks.open_files(100), Level.PROBLEM),
        (lambda: machine_checks.clock(NOW, NOW - 3600), Level.OK),
        (lambda: machine_checks.clock(NOW, None), Level.OK),
        (lambda: machine_checks.clock(NOW, NOW + 3600), Level.WARNING),
        (lambda: machine_checks.clock(0.0, None), Level.WARNING),
        (lambda: job_checks.state(job(state="running")), Level.OK),
        (lambda: job_checks.state(job(state="succeeded")), Level.OK),
        (lambda: job_checks.state(job(state="recovering")), Level.WARNING),
        (lambda: job_checks.state(job(state="failed")), Level.PROBLEM),
    ],
)
def test_a_check_has_the_level_of_its_finding(check: Callable[[], Finding], level: Level) -> None:
    finding = check()
    assert finding.level is level
    assert bool(finding.advice) is (level is not Level.OK)


# --- software


def test_the_supported_versions_are_those_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, version in software_checks.OLDEST.items():
        assert f"{name}>={'.'.join(map(str, version))}" in project["optional-dependencies"]["recipes"]
    assert software_checks.version_numbers("2.15.0+cu130") == (2, 15, 0)


def test_an_interpreter_that_cannot_be_run_is_a_problem(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho no such thing >&2\nexit 3\n")
    for python in (str(tmp_path / "missing"), str(script)):
        assert [finding.level for finding in software_checks.software(python)] == [Level.PROBLEM]
        script.chmod(0o755)
    assert "no such thing" in software_checks.software(str(script))[0].detail


# --- GPUs, network, storage, kernel


def test_foreign_processes_on_a_gpu_are_named() -> None:
    assert check_gpu(0, "H200", 10**9, 10**11, []).level is Level.OK
    finding = check_gpu(0, "H200", 10**9, 10**11, ["process 7 (python, 3.0 GB)"])
    assert (finding.level, "process 7" in finding.detail) == (Level.WARNING, True)


def test_a_process_belongs_to_the_home_whose_run_directory_it_has() -> None:
    runs = Path("/home/me/.rekindle/runs")
    assert is_of_job(runs, ["A=1", f"REKINDLE_RUN_DIR={runs}/abc"])
    assert not is_of_job(runs, [f"REKINDLE_RUN_DIR={runs}-of-another/abc"])
    assert not is_of_job(runs, [])


def test_a_host_name_that_does_not_resolve_is_a_problem() -> None:
    for name in ("no such host", "a..b", "x" * 64):
        finding = machine_checks.host_name(name)
        assert finding.level is Level.PROBLEM
        assert name in finding.advice


def test_the_file_system_is_that_of_the_innermost_mount() -> None:
    kinds = {"/home/me": "ext4", "/data/runs": "nfs4", "/data/fast disk/runs": "xfs", "/database": "ext4"}
    kinds["/mnt/größe/me"] = "nfs4"
    assert {place: machine_checks.filesystem_of(Path(place), MOUNTS) for place in kinds} == kinds


def test_a_home_that_does_not_exist_yet_is_checked_by_its_parent_and_not_created(tmp_path: Path) -> None:
    place = tmp_path / "new" / "home"
    findings = machine_checks.storage(place)
    assert [finding.name for finding in findings] == ["disk", "file system", "disk writes", "shared memory"]
    assert list(tmp_path.iterdir()) == []


def test_evidence_of_the_kernel_is_checked(tmp_path: Path) -> None:
    vmstat = tmp_path / "vmstat"
    assert machine_checks.oom_count(vmstat).level is Level.WARNING
    vmstat.write_text("nr_free_pages 1\noom_kill 3\n")
    assert "3 since boot" in machine_checks.oom_count(vmstat).detail
    assert machine_checks.kernel_log(tmp_path / "kmsg").level is Level.WARNING


# --- the home


def test_what_others_can_read_is_a_problem_with_the_command_that_restricts_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o600)
    assert machine_checks.private("token", token).level is Level.OK
    token.chmod(0o644)
    finding = machine_checks.private("token", token)
    assert (finding.level, finding.advice) == (Level.PROBLEM, f"Restrict it: chmod 600 {token}")


def test_a_deletion_that_the_server_completes_meanwhile_is_none_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Home(tmp_path / "home")
    place.create()
    old, gone = (place.runs / f"{DELETED}{name}" for name in ("old", "gone"))
    old.mkdir()
    monkeypatch.setattr(Path, "glob", lambda *_: iter([gone, old]))
    monkeypatch.setattr(machine_checks, "_DELETION_SECONDS", -1)
    assert str(old) in machine_checks.deletions(place)[0].detail


def test_a_killed_server_is_found_by_the_files_that_it_left(tmp_path: Path) -> None:
    place = Home(tmp_path / "home")
    assert [finding.level for finding in machine_checks.home_access(place)] == [Level.OK]
    place.create()
    assert machine_checks.server(place).detail == "none runs"
    place.server_json.write_text('{"url": "http://127.0.0.1:9", "pid": 1}')
    assert (machine_checks.server(place).level, "stale" in machine_checks.server(place).detail) == (Level.WARNING, True)


def test_a_server_that_answers_with_an_error_is_a_problem_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def request(_: object, method: str, url: str, **_options: object) -> httpx2.Response:
        headers, problem = {"content-type": "application/problem+json"}, {"status": 503, "detail": "the disk is gone"}
        return httpx2.Response(503, json=problem, headers=headers, request=httpx2.Request(method, f"http://x{url}"))

    place = Home(tmp_path / "home")
    place.create()
    place.token.write_text("secret")
    place.server_json.write_text('{"url": "http://127.0.0.1:9", "pid": 7}')
    monkeypatch.setattr(transport.BlockingHttp, "request", request)
    for module in (discovery, machine_checks):
        monkeypatch.setattr(module, "lock_holder", lambda _: 7)
    finding = machine_checks.server(place)
    assert (finding.level, "the disk is gone" in finding.detail) == (Level.PROBLEM, True)
    assert running_server(place) is not None


# --- a job


def rank(**changes: object) -> dict[str, object]:
    fields = {"rank": 1, "pid": 77, "state": "running", "step": 5, "process_state": "S", "heartbeat_age": 1.0}
    return {**fields, "straggler": None, "hang_timeout": 60.0, "without_progress": None, **changes}


@pytest.mark.parametrize(
    ("changes", "level", "text"),
    [
        ({}, Level.OK, "step 5"),
        ({"process_state": "T"}, Level.PROBLEM, "stopped by a signal"),
        ({"process_state": "D"}, Level.WARNING, "waits in the kernel"),
        ({"straggler": 0.72}, Level.WARNING, "the others wait for it 72% of the time"),
        ({"heartbeat_age": 90.0}, Level.WARNING, "1 min 30 s ago"),
        ({"heartbeat_age": 90.0, "hang_timeout": 300.0}, Level.OK, "1 min 30 s ago"),
        ({"step": None, "heartbeat_age": None, "process_state": None}, Level.OK, "running"),
        ({"step": None, "heartbeat_age": None, "without_progress": 10.0}, Level.OK, "running"),
        (
            {"step": None, "heartbeat_age": None, "without_progress": 42.0},
            Level.WARNING,
            "no progress for 42 s, counts as",
        ),
    ],
)
def test_a_rank_is_checked_by_its_process_and_its_heartbeat(changes: object, level: Level, text: str) -> None:
    finding = job_checks.check_rank(rank(**changes))
    assert (finding.level, text in finding.detail) == (level, True)


def test_a_rank_is_named_with_its_process() -> None:
    assert "process 77" in job_checks.check_rank(rank()).detail
    assert "process" not in job_checks.check_rank(rank(pid=None)).detail


def test_a_stopped_rank_can_be_continued() -> None:
    assert job_checks.check_rank(rank(process_state="T")).advice == "Continue it: kill -CONT 77"


def test_the_latest_verified_snapshot_is_named_and_damaged_ones_are_a_warning() -> None:
    taken = {"epoch": 0, "bytes": 1, "world_size": 2, "created_at": None}
    good, bad = {"step": 40, "verified": True, **taken}, {"step": 45, "verified": False, **taken}
    assert job_checks.snapshots([]).level is Level.WARNING
    assert job_checks.snapshots([good]).level is Level.OK
    finding = job_checks.snapshots([bad, good])
    assert finding.level is Level.WARNING
    assert "step 40" in finding.detail
    assert "damaged: step 45" in finding.detail


def test_a_checkpoint_that_the_script_wrote_in_this_job_is_what_it_resumes_from() -> None:
    own = {"path": "out/model.pt", "bytes": 9, "written_at": None, "complete": True, "attempt": 1, "loaded": None}
    for incomplete in ({**own, "complete": False}, {**own, "attempt": 0}):
        assert job_checks.snapshots([], [incomplete]).level is Level.WARNING
    finding = job_checks.snapshots([], [{**own, "complete": False, "path": "torn.pt"}, own])
    assert (finding.level, "out/model.pt" in finding.detail) == (Level.OK, True)


def test_a_rank_whose_recorder_is_silent_stands_out() -> None:
    assert job_checks.collectives({0: None, 1: None}).level is Level.OK
    assert job_checks.collectives({0: 41, 1: 41}).level is Level.OK
    assert "no answer from rank 1" in job_checks.collectives({0: 41, 1: None}).detail


# --- how it is shown


def test_findings_are_printed_sanitized_with_the_advice_and_counted() -> None:
    found = Finding("na\x1b[31mme", Level.PROBLEM, "bro\nken", "Mend it.")
    first, second = finding_lines(Console(width=80), found)
    assert first.plain.split() == ["problem", "name", "bro", "ken"]
    assert second.plain.strip() == "Mend it."
    assert all(line.cell_len <= 40 for line in finding_lines(Console(width=40), found))
    assert summary([ok("a", "")]) == "All checks passed."
    assert summary([warning("a", "", ""), problem("b", "", ""), found]) == "2 problems, 1 warning."
