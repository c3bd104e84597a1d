"""What is said of hangs and errors on GPUs, by their true texts; the driver's inventory and the recorders of torch."""

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from e2e.waiting import until
from gpu.conftest import GPUS
from rekindle import Snapshots
from rekindle.contract import nvidia_driver, rank_traces
from rekindle.contract.files import fsync_directory

MIB = 1 << 20


def stays_in(run, hang) -> str:
    """Name of the function of the script that the outcome names."""
    lines = (run.run_dir.code / "train.py").read_text().splitlines()[: hang["line"]]
    return next(line for line in reversed(lines) if line.startswith("def "))[4:].partition("(")[0]


@pytest.mark.parametrize("where", ["sleeps", pytest.param("synchronizes", marks=pytest.mark.gpu)])
def test_a_rank_that_does_not_come_is_named_with_its_line(begin, found, where):
    run = begin("stuck.py", where, hang_timeout=5.0)
    began = time.monotonic()
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["hang", "success"], run.all_logs()
    hang = run.outcomes()[0]
    assert (hang["rank"], stays_in(run, hang)) == (1, where), hang
    found(f"hang, {where}: start to success", time.monotonic() - began)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "klass", "advice"),
    [
        ("assert", "user_error", "CUDA_LAUNCH_BLOCKING=1"),
        ("address", "user_error", "CUDA_LAUNCH_BLOCKING=1"),
        ("memory", "oom", "out of memory"),
    ],
)
def test_an_error_of_cuda_has_its_class_and_advice(begin, found, kind, klass, advice):
    if kind == "address":
        pytest.importorskip("cupy")
    run = begin("errors.py", kind, ranks=1, max_failures=1)
    assert run.finish() == "failed"
    outcome = run.outcomes()[0]
    found(f"true text, {kind}", outcome["evidence"]["traceback"].strip().splitlines()[-1])
    assert outcome["class"] == klass, run.all_logs()
    assert advice in outcome["message"], outcome["message"]


@pytest.mark.gpu
def test_two_ranks_on_one_card_are_refused_by_nccl_with_advice(begin, found):
    if GPUS > 1:
        pytest.skip("there are several cards")
    run = begin("errors.py", "card", ranks=2, max_failures=1)
    ended = run.finish()
    outcome = run.outcomes()[0]
    found("true text, two ranks on one card", str(outcome["evidence"].get("traceback", ended)).strip()[-2000:])
    assert ended == "succeeded" or outcome["class"] in ("user_error", "comm"), outcome
    assert ended == "succeeded" or "set_device" in outcome["message"], outcome


def test_a_recorder_answers_for_the_collectives_of_a_rank(begin, found, tmp_path):
    run = begin("recorders.py", str(tmp_path), ranks=1)
    run.reach_step(1)
    rank_dir = run.run_dir.attempt(1).rank(0)
    for recorder in rank_traces._RECORDERS:
        answer = rank_traces._parse(rank_traces.query(rank_dir, recorder))
        found(f"recorder {recorder.rstrip('?&')}", "no answer" if answer is None else f"{len(answer[1])} entries")
    known = rank_traces.collectives(rank_dir, on_gpu=GPUS > 0)
    assert known is not None
    assert known.knows_gpu is (GPUS > 0)
    groups = {each.group for each in rank_traces.collective_history(rank_dir, on_gpu=GPUS > 0)}
    found("groups of collectives", ", ".join(sorted(groups)))
    assert any("nccl" in group for group in groups) if GPUS else groups == {"0"}
    (tmp_path / "end").touch()
    assert run.finish() == "succeeded", run.all_logs()


@pytest.mark.gpu
def test_the_driver_reports_what_a_process_uses(found):
    held = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda:0")
    torch.cuda.synchronize()
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    [reading] = nvidia_driver.read_gpus([uuid])
    assert reading is not None
    assert reading.memory_used_bytes >= held.nbytes
    with nvidia_driver.Driver() as driver:
        began = time.monotonic()
        found("a reading of the open driver, ms", 1000 * (time.monotonic() - began) if driver.read([uuid]) else None)
        found("processes that the driver lists", len(driver.processes([uuid]) or ()))
    found("reading", str(reading))


@pytest.mark.gpu
def test_the_server_finds_the_gpus(found):
    devices = pytest.importorskip("rekindle_service.machine.slots", reason="the server's packages are not here")
    machine = devices.find_machine(0, {})
    found("slots", ", ".join(f"{slot.name} {slot.model}" for slot in machine.slots))
    assert len(machine.slots) >= GPUS
    assert machine.known_gpus <= devices.count_on_bus() or devices.count_on_bus() == 0


def test_doctor_finds_nothing_wrong_with_gpus(found, tmp_path):
    pytest.importorskip("typer", reason="the server's packages are not here")
    ended = subprocess.run(
        [sys.executable, "-m", "rekindle_service", "--home", tmp_path / "home", "doctor"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    lines = [line for line in ended.stdout.splitlines() if "cuda" in line.lower() or "gpu" in line.lower()]
    found("doctor", "; ".join(lines)[:500] or (ended.stderr or ended.stdout)[-300:])


def test_a_snapshot_stalls_training_less_than_a_durable_save(found, compares, tmp_path):
    device = torch.device("cuda:0" if GPUS else "cpu")
    elements = (1024 if GPUS else 64) * MIB // 4
    state = {f"part{index}": torch.randn(elements // 8, device=device) for index in range(8)}
    snapshots = Snapshots(tmp_path / "ours")
    ours, theirs = [], []
    for step in range(4):
        began = time.monotonic()
        snapshots.async_save(step, 0, state, {})
        ours.append(time.monotonic() - began)
        snapshots.wait()
        began = time.monotonic()
        save_durably(state, tmp_path / "theirs.pt")
        theirs.append(time.monotonic() - began)
    saved = snapshots.restore()
    assert saved is not None
    shutil.rmtree(tmp_path / "ours")
    gib = elements * 4 / (1 << 30)
    found(f"snapshot of {gib:.2f} GiB, stall", statistics.median(ours[1:]))
    found(f"torch.save of {gib:.2f} GiB, durable", statistics.median(theirs[1:]))
    assert not compares or statistics.median(ours[1:]) < statistics.median(theirs[1:])


def save_durably(state: dict, path: Path) -> None:
    with path.with_suffix(".part").open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    path.with_suffix(".part").replace(path)
    fsync_directory(path.parent)


@pytest.mark.gpu(cards=2)
def test_on_two_cards_a_rank_that_does_not_come_to_a_collective_of_nccl_is_named(begin):
    run = begin("stuck.py", "sleeps")
    until(lambda: run.classes() or run.keeper.poll() is not None, "the hang is found", 400)
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["hang", "success"]
    assert (run.outcomes()[0]["rank"], stays_in(run, run.outcomes()[0])) == (1, "sleeps")
