"""What a script sees of its rank is what plain torchrun would have shown it, and ``REKINDLE_*`` in addition."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from faults.faulty_run import FaultyRun
from rekindle.contract.environment import clean_environment
from rekindle.contract.job_options import TargetKind
from rekindle.contract.run_dir.journal import RecordType

_OWN = ("REKINDLE_", "WANDB_", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_TORCHRUNS = ("TORCHELASTIC_", "MASTER_PORT", "MASTER_ADDR", "PYTHON_EXEC")  # differ from launch to launch


def add_siblings(directory: Path) -> None:
    (directory / "calendar.py").write_text("NAME = 'the calendar beside the script'\n")
    (directory / "worker.py").write_text("NAME = 'worker'\n")


def seen(path: Path) -> dict:
    value = json.loads(path.read_text())
    value["environment"] = {
        name: text for name, text in value["environment"].items() if not name.startswith((*_OWN, *_TORCHRUNS))
    }
    value.pop("random")
    return value


def by_plain_torchrun(code: Path, out: Path, *target: str) -> dict:
    """On one rank, in the environment that a keeper gives."""
    own = {**clean_environment(os.environ), "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", *target]
    subprocess.run(
        [*argv, str(out), "--flag", "two words"], cwd=code, env=own, stdin=subprocess.DEVNULL, check=True, timeout=120,
        capture_output=True,
    )  # fmt: skip
    return seen(out)


def by_keeper(root: Path, *, target: str, kind: TargetKind, warm: bool, nested: bool) -> tuple[FaultyRun, dict]:
    out = root / "seen.json"
    run = FaultyRun(root / "run", "probe.py", str(out), "--flag", "two words", ranks=1, kind=kind, target=target,
                    warm=warm)  # fmt: skip
    add_siblings(run.run_dir.code)
    if nested:
        package = run.run_dir.code / "pkg"
        package.mkdir()
        (package / "__init__.py").touch()
        (run.run_dir.code / "train.py").rename(package / "train.py")
    try:
        run.start()
        assert run.finish() == "succeeded", run.all_logs()
    finally:
        run.close()
    return run, seen(out)


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("kind", [TargetKind.SCRIPT, TargetKind.MODULE])
def test_a_rank_sees_what_plain_torchrun_shows(tmp_path, warm, kind):
    module = kind is TargetKind.MODULE
    run, ours = by_keeper(tmp_path, target="pkg.train" if module else "train.py", kind=kind, warm=warm, nested=module)
    code = run.run_dir.code
    theirs = by_plain_torchrun(
        code, tmp_path / "plain.json", *(["-m", "pkg.train"] if module else [str(code / "train.py")])
    )
    assert ours.pop("torch_loaded") is warm
    theirs.pop("torch_loaded")
    assert ours == theirs


def test_no_two_ranks_and_no_two_attempts_draw_the_same_random_numbers(begin):
    run = begin("draws.py")
    assert run.finish() == "succeeded", run.all_logs()
    drawn = [run.log(rank, attempt=attempt).split()[1:] for rank in (0, 1) for attempt in (1, 2)]
    assert [len(set(numbers)) for numbers in zip(*drawn, strict=True)] == [4, 4, 4]


@pytest.mark.parametrize("warm", [True, False])
def test_threads_exit_functions_and_forks_end_as_they_do_without_us(begin, warm):
    run = begin("ends.py", ranks=1, warm=warm)
    assert run.finish() == "succeeded", run.all_logs()
    lines = run.log(0).splitlines()
    assert lines[0] == "doubled 42"
    assert lines[1] == "child falls off the end"
    assert lines[-2:] == ["thread ended", "exit function ran"]
    assert "child ended with 0" in lines
    assert lines.count("exit function ran") == 2, "the child's and the rank's"


def test_a_script_that_fails_runs_its_exit_functions_too(begin):
    run = begin("ends.py", "fail", ranks=1, max_failures=1)
    assert run.finish() == "failed"
    assert run.log(0).splitlines()[-2:] == ["thread ended", "exit function ran"]
    assert run.log(0, "stderr").splitlines()[-1] == "with words"
    assert [(one["exception"], one["exit_code"]) for one in run.outcomes()] == [("SystemExit", 1)]


def test_the_exit_code_is_known_of_a_rank_that_ends_slowly_while_torchrun_waits_for_it(begin):
    run = begin("ends.py", "fail", "1", ranks=2, max_failures=1)
    assert run.finish() == "failed"
    exits = {record.rank: record for record in run.records(RecordType.RANK_EXITED)}
    assert [exits[rank].exit_code for rank in (0, 1)] == [None, 1]
    assert not exits[1].killed


@pytest.mark.parametrize("how", ["close", "remove"])
def test_a_script_may_be_done_with_its_output_before_it_ends(begin, how):
    run = begin("closes.py", how, ranks=1, max_failures=1)
    assert run.finish() == "succeeded", run.all_logs()
    assert run.log(0) == "begun\n"


@pytest.mark.parametrize("warm", [True, False])
def test_what_a_script_has_written_into_files_that_it_leaves_open_is_there_when_it_has_ended(begin, tmp_path, warm):
    run = begin("leaves_open.py", str(tmp_path), ranks=1, warm=warm)
    assert run.finish() == "succeeded", run.all_logs()
    for attempt in ("1", "2"):
        directory = tmp_path / attempt
        assert (directory / "losses.csv").read_text() == "step,loss\n"
        assert (directory / "notes.txt").read_text() == "a last note\n"
        assert b"a packed line\n" in zlib.decompressobj(wbits=31).decompress((directory / "packed.gz").read_bytes())
        assert run.log(0, attempt=int(attempt)) == "said by a C library\n"


def test_exit_functions_that_wait_for_ever_end_neither_a_failed_attempt_late_nor_a_finished_job_badly(begin):
    failed = begin("stuck_exit.py", "fail", ranks=1, max_failures=1)
    finished = begin("stuck_exit.py", ranks=2)
    assert failed.finish() == "failed"
    assert failed.classes() == ["user_error"]
    assert finished.finish() == "succeeded", finished.all_logs()
    assert finished.classes() == ["success"]
    assert "exit functions did not end within 6 s" in finished.log(0, "stderr")
    running = failed.records(RecordType.RANK_EXITED)[0]
    assert running.killed, "the keeper did not wait for it"
