"""Each check of `rekindle doctor` returns a level and what to do."""

import time
from pathlib import Path

import pytest
from rich.console import Console

from cli_examples import job
from rekindle_service.cli.checks import job as job_checks
from rekindle_service.cli.checks import software, storage, system
from rekindle_service.cli.checks.finding import Finding, Level, at_least, ok, problem, warning
from rekindle_service.cli.checks.gpus import check_gpu, is_of_job
from rekindle_service.cli.commands.doctor import finding_lines, summary
from rekindle_service.config.home import Home

MOUNTS = """21 1 8:1 / / rw - ext4 /dev/sda1 rw
30 21 0:40 / /data rw shared:1 - nfs4 server:/data rw
31 30 0:41 / /data/fast\\040disk rw - xfs /dev/nvme0 rw
"""


def test_two_limits_separate_ok_from_warning_from_problem() -> None:
    levels = [at_least("x", value, enough=10, minimum=5, detail="", advice="").level for value in (10, 9, 5, 4)]
    assert levels == [Level.OK, Level.WARNING, Level.WARNING, Level.PROBLEM]


# --- software


def test_the_supported_versions_are_those_of_the_distribution() -> None:
    assert set(software.PACKAGES) <= set(software.minimum_versions())
    assert software.version_numbers("2.15.0+cu130") == (2, 15, 0)


@pytest.mark.parametrize(
    ("found", "level"),
    [
        ({"version": "2.15.0+cpu", "error": None}, Level.OK),
        ({"version": "2.11.0", "error": None}, Level.OK),
        ({"version": "2.9.1", "error": None}, Level.PROBLEM),
        ({"version": None, "error": "not installed"}, Level.PROBLEM),
        ({"version": "2.15.0", "error": "ImportError: libc10.so"}, Level.PROBLEM),
    ],
)
def test_torch_must_be_installed_loadable_and_new_enough(found: dict[str, str | None], level: Level) -> None:
    finding = software.check_package("torch", found, (2, 11))
    assert finding.level is level
    assert bool(finding.advice) is (level is not Level.OK)


def test_what_only_recipes_need_is_a_warning() -> None:
    assert software.check_package("torchmetrics", {"version": None, "error": ""}, (1, 8)).level is Level.WARNING


def test_a_gpu_that_torch_cannot_use_is_a_problem() -> None:
    assert software.check_cuda({"built": None, "usable": 0}, present=0).level is Level.OK
    assert software.check_cuda({"built": "13.0", "usable": 2}, present=2).level is Level.OK
    assert software.check_cuda({"built": None, "usable": 0}, present=2).level is Level.PROBLEM


def test_an_interpreter_that_cannot_be_run_is_a_problem(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho no such thing >&2\nexit 3\n")
    for python in (str(tmp_path / "missing"), str(script)):
        assert [finding.level for finding in software.software(python)] == [Level.PROBLEM]
        script.chmod(0o755)
    assert "no such thing" in software.software(str(script))[0].detail


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
        finding = system.host_name(name)
        assert finding.level is Level.PROBLEM
        assert name in finding.advice
    assert system.host_name("localhost").level is Level.OK


def test_an_address_that_is_not_ours_cannot_be_listened_on() -> None:
    assert system.loopback().level is Level.OK
    assert system.loopback("192.0.2.1").level is Level.PROBLEM


@pytest.mark.parametrize(
    ("place", "kind", "level"),
    [
        ("/home/me", "ext4", Level.OK),
        ("/data/runs", "nfs4", Level.PROBLEM),
        ("/data/fast disk/runs", "xfs", Level.OK),
        ("/database", "ext4", Level.OK),
    ],
)
def test_the_file_system_is_that_of_the_innermost_mount(place: str, kind: str, level: Level) -> None:
    assert storage.filesystem_of(Path(place), MOUNTS) == kind
    assert storage.check_filesystem(kind).level is level


def test_a_home_that_does_not_exist_yet_is_checked_by_its_parent_and_not_created(tmp_path: Path) -> None:
    place = tmp_path / "new" / "home"
    findings = storage.storage(place)
    assert [finding.name for finding in findings] == ["disk", "file system", "disk writes", "shared memory"]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_problem() -> None:
    assert storage.write_speed(Path("/proc")).level is Level.PROBLEM


def test_missing_shared_memory_is_a_warning(tmp_path: Path) -> None:
    assert storage.shared_memory(tmp_path / "shm").level is Level.WARNING


def test_evidence_of_the_kernel_is_checked(tmp_path: Path) -> None:
    vmstat = tmp_path / "vmstat"
    assert system.oom_count(vmstat).level is Level.WARNING
    vmstat.write_text("nr_free_pages 1\noom_kill 3\n")
    assert "3 since boot" in system.oom_count(vmstat).detail
    assert system.kernel_log(tmp_path / "kmsg").level is Level.WARNING


def test_few_open_files_are_a_warning() -> None:
    levels = [system.open_files(limit).level for limit in (-1, 65536, 512, 100)]
    assert levels == [Level.OK, Level.OK, Level.WARNING, Level.PROBLEM]


def test_a_clock_that_was_set_back_or_never_set_is_a_warning() -> None:
    now = time.time()
    assert system.clock(now, now - 3600).level is Level.OK
    assert system.clock(now, None).level is Level.OK
    assert system.clock(now, now + 3600).level is Level.WARNING
    assert system.clock(0.0, None).level is Level.WARNING


# --- the home


def test_what_others_can_read_is_a_problem_with_the_command_that_restricts_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o600)
    assert storage.private("token", token).level is Level.OK
    token.chmod(0o644)
    finding = storage.private("token", token)
    assert (finding.level, finding.advice) == (Level.PROBLEM, f"Restrict it: chmod 600 {token}")


def test_a_killed_server_is_found_by_the_files_that_it_left(tmp_path: Path) -> None:
    place = Home(tmp_path / "home")
    assert [finding.level for finding in storage.home_access(place)] == [Level.OK]
    place.create()
    assert storage.server(place).detail == "none runs"
    place.server_json.write_text('{"url": "http://127.0.0.1:9", "pid": 1}')
    assert (storage.server(place).level, "stale" in storage.server(place).detail) == (Level.WARNING, True)


# --- a job


def rank(**changes: object) -> dict[str, object]:
    seen = {
        "process_state": "S",
        "heartbeat_age": 1.0,
        "straggler": None,
        "hang_timeout": 60.0,
        "without_progress": None,
    }
    return {"rank": 1, "pid": 77, "state": "running", "step": 5, **seen, **changes}


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


def test_a_stopped_rank_can_be_continued() -> None:
    assert job_checks.check_rank(rank(process_state="T")).advice == "Continue it: kill -CONT 77"


def test_a_job_is_checked_by_its_state() -> None:
    states = {"running": Level.OK, "succeeded": Level.OK, "recovering": Level.WARNING, "failed": Level.PROBLEM}
    assert {name: job_checks.state(job(state=name)).level for name in states} == states


def test_the_latest_verified_snapshot_is_named_and_damaged_ones_are_a_warning() -> None:
    taken = {"epoch": 0, "bytes": 1, "world_size": 2, "created_at": None}
    good, bad = {"step": 40, "verified": True, **taken}, {"step": 45, "verified": False, **taken}
    assert job_checks.snapshots([]).level is Level.WARNING
    assert job_checks.snapshots([good]).level is Level.OK
    finding = job_checks.snapshots([bad, good])
    assert (finding.level, "step 40" in finding.detail, "damaged: step 45" in finding.detail) == (
        Level.WARNING,
        True,
        True,
    )


def test_a_rank_whose_recorder_is_silent_stands_out() -> None:
    assert job_checks.collectives({0: None, 1: None}).level is Level.OK
    assert job_checks.collectives({0: 41, 1: 41}).level is Level.OK
    assert "no answer from rank 1" in job_checks.collectives({0: 41, 1: None}).detail


# --- how it is shown


def test_findings_are_printed_sanitized_with_the_advice() -> None:
    found = Finding("na\x1b[31mme", Level.PROBLEM, "bro\nken", "Mend it.")
    first, second = finding_lines(Console(width=80), found)
    assert first.plain.split() == ["problem", "name", "bro", "ken"]
    assert second.plain.strip() == "Mend it."
    assert all(line.cell_len <= 40 for line in finding_lines(Console(width=40), found))


def test_the_summary_counts_problems_and_warnings() -> None:
    assert summary([ok("a", "")]) == "All checks passed."
    assert summary([warning("a", "", ""), problem("b", "", ""), problem("c", "", "")]) == "2 problems, 1 warning."
