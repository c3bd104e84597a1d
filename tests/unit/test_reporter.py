import json
import os
import time

import numpy as np
import pytest
import torch

from rekindle.contract.environment import RankEnv
from rekindle.contract.files import read_lines, write_json
from rekindle.contract.run_dir.control_messages import ControlMessage, MessageType, parse_message
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import MetricPoint, RankState, RankStatus
from rekindle.training.reporter import Reporter


def environment(tmp_path, rank=0):
    return RankEnv.read({"REKINDLE_RUN_DIR": str(tmp_path), "REKINDLE_ATTEMPT": "2", "RANK": str(rank)})


def begin(tmp_path, rank=0):
    """What the rank's wrapper does before the script starts."""
    env = environment(tmp_path, rank)
    env.rank_dir.root.mkdir(parents=True)
    status = RankStatus(rank, rank, 2, "host", os.getpid(), 7, "cpu", RankState.RUNNING)
    write_json(env.rank_dir.status, status.to_json())
    return Reporter(env), env.rank_dir


def status_of(rank_dir):
    return json.loads(rank_dir.status.read_bytes())


def points_of(rank_dir):
    return [line for _, line in read_lines(rank_dir.metrics)]


def test_outside_rekindle_nothing_happens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reporter = Reporter(RankEnv.read({}))
    reporter.report(step=3, loss=0.5)
    reporter.flush()
    assert list(tmp_path.iterdir()) == []


def test_the_wrappers_part_of_the_status_is_left_as_it_was(tmp_path):
    reporter, rank_dir = begin(tmp_path)
    before = status_of(rank_dir)
    reporter.report(epoch=1, epochs=3, step=40, steps=120, phase="train")
    after = status_of(rank_dir)
    own = {"epoch": 1, "epochs": 3, "step": 40, "steps": 120, "phase": "train", "reported_steps": 1}
    assert after == {**before, **own, "updated_at": after["updated_at"]}
    assert before["updated_at"] < after["updated_at"] <= time.time()


def test_progress_of_other_kinds_of_numbers_is_shown_as_whole_ones(tmp_path):
    reporter, rank_dir = begin(tmp_path)
    reporter.report(epoch=1.75, epochs=np.float32(3), step=np.int64(40), steps=torch.tensor(120), phase=None)
    status = RankStatus.from_json(status_of(rank_dir))
    assert (status.epoch, status.epochs, status.step, status.steps, status.phase) == (1, 3, 40, 120, None)


@pytest.mark.parametrize("progress", [{"step": 0.5}, {"steps": "9"}, {"epoch": "one"}, {"epoch": float("nan")}])
def test_progress_that_is_no_number_is_named_and_the_status_stays_as_it_was(tmp_path, progress):
    reporter, rank_dir = begin(tmp_path)
    before = status_of(rank_dir)
    (name,) = progress
    with pytest.raises(TypeError, match=rf"report\({name}=…\): must be a whole number, not "):
        reporter.report(**progress)
    assert status_of(rank_dir) == before


def test_every_name_that_is_no_progress_is_a_metric(tmp_path):
    reporter, rank_dir = begin(tmp_path)
    metrics = {"steps_per_second": 7.0, "snapshot_step": 3.0, "completed": 1.0, "rank": 5.0}
    reporter.report(step=1, **metrics)
    reporter.flush()
    assert [point["values"] for point in points_of(rank_dir)] == [metrics]
    assert status_of(rank_dir)["snapshot_step"] is None


def test_steps_may_be_delayed_but_other_changes_are_written_at_once_and_the_last_step_at_the_end(tmp_path):
    reporter, rank_dir = begin(tmp_path)
    reporter.report(phase="train")
    inode = rank_dir.status.stat().st_ino
    written = 0
    for step in range(1, 200):
        reporter.report(step=step)
        written += rank_dir.status.stat().st_ino != inode
        inode = rank_dir.status.stat().st_ino
    assert written < 100
    reporter.update_status(snapshot_step=150)
    assert status_of(rank_dir)["snapshot_step"] == 150
    assert status_of(rank_dir)["step"] == 199
    reporter.report(step=200)
    reporter.flush()
    assert status_of(rank_dir)["step"] == 200


def test_metrics_are_whole_lines_and_numbers_that_are_not_finite_become_null(tmp_path):
    reporter, rank_dir = begin(tmp_path)
    reporter.report(step=1, epoch=0, loss=0.5, lr=0.1)
    reporter.report(step=2, loss=float("nan"))
    reporter.log_metrics(MetricPoint(3, 1, 5.0, {"loss": float("-inf")}))
    reporter.flush()
    found = [(point["step"], point["epoch"], point["values"]) for point in points_of(rank_dir)]
    assert found == [(1, 0, {"loss": 0.5, "lr": 0.1}), (2, 0, {"loss": None}), (3, 1, {"loss": None})]


def test_after_a_full_disk_only_the_points_are_lost_that_did_not_fit(tmp_path):
    reporter, rank_dir = begin(tmp_path)
    rank_dir.metrics.write_bytes(b'{"step": 1, "epo')
    reporter.report(step=2, loss=0.5)
    reporter.flush()
    assert [point["step"] for point in points_of(rank_dir)] == [2]


def test_only_rank_0_keeps_metrics(tmp_path):
    reporter, rank_dir = begin(tmp_path, rank=1)
    reporter.report(step=1, loss=0.5)
    reporter.flush()
    assert not rank_dir.metrics.exists()
    assert status_of(rank_dir)["step"] == 1


def test_a_metric_that_is_no_number_is_named(tmp_path):
    reporter, _ = begin(tmp_path)
    with pytest.raises(TypeError, match=r"report\(loss=…\): a metric must be a number, not list"):
        reporter.report(loss=[1, 2])


def test_a_notice_is_shown_until_it_is_cleared_and_a_later_one_is_not_cleared_with_it(tmp_path):
    reporter, rank_dir = begin(tmp_path)
    reporter.warn("disk full")
    assert status_of(rank_dir)["notice"] == "disk full"
    reporter.warn("snapshot 4 skipped")
    reporter.clear("disk full")
    assert status_of(rank_dir)["notice"] == "snapshot 4 skipped"
    reporter.clear("snapshot 4 skipped")
    assert status_of(rank_dir)["notice"] is None


def test_a_status_that_cannot_be_written_does_not_end_the_training(tmp_path):
    reporter, rank_dir = begin(tmp_path)
    rank_dir.status.unlink()
    rank_dir.root.rmdir()
    reporter.report(phase="train", loss=0.5)
    reporter.flush()


def test_a_forked_child_writes_nothing(tmp_path):
    reporter, rank_dir = begin(tmp_path)
    child = os.fork()
    if child == 0:
        reporter.report(phase="child", loss=1.0)
        reporter.flush()
        os._exit(0)
    os.waitpid(child, 0)
    assert status_of(rank_dir)["phase"] is None
    assert not rank_dir.metrics.exists()


def test_resuming_is_reported_to_the_keeper_once_for_all_ranks(tmp_path):
    os.mkfifo(RunDir(tmp_path).control)
    fifo = os.open(RunDir(tmp_path).control, os.O_RDWR | os.O_NONBLOCK)
    try:
        for rank in (0, 1):
            reporter, rank_dir = begin(tmp_path, rank)
            reporter.resumed(40)
            assert status_of(rank_dir)["resumed_from_step"] == 40
        sent = os.read(fifo, 4096).splitlines()
    finally:
        os.close(fifo)
    assert [parse_message(line) for line in sent] == [ControlMessage(MessageType.RESUMED, attempt=2, step=40)]
