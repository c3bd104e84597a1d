"""The best snapshot by a metric of the script's own, in a run of one rank without torchrun."""

import json

import pytest
import torch
from torch.utils.data import TensorDataset

from rekindle import Run, SnapshotPolicy
from rekindle.contract.run_dir.snapshot_dir import SnapshotDir, SnapshotScore

STEPS = 3  # of an epoch
RARELY = SnapshotPolicy(every_steps=1000, keep_last=1)


@pytest.fixture(autouse=True)
def at_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def train(accuracies, *, snapshot_policy=RARELY, monitor="accuracy", early=()):
    """Train an epoch for each accuracy, which is logged after its batches, or in mid-epoch for those in ``early``."""
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    with Run(model=model, device="cpu", snapshot_policy=snapshot_policy, monitor=monitor) as run:
        for epoch in run.epochs(len(accuracies)):
            for (x,) in run.batches(TensorDataset(torch.randn(STEPS * 2, 1)), global_batch=2):
                run.model(x).sum().backward()
                run.log(loss=1.0)
                if epoch in early and run.step % STEPS == 0:
                    run.log(accuracy=accuracies[epoch])
            if epoch not in early:
                run.log(accuracy=accuracies[epoch])


def epochs_kept(tmp_path):
    """How many epochs had ended when each snapshot was taken."""
    return sorted(int(path.parent.name) // STEPS for path in tmp_path.glob("snapshots/*/manifest.json"))


def test_the_best_epoch_is_saved_and_kept_though_the_policy_asks_for_none(tmp_path):
    train([0.1, 0.9, 0.5, 0.9, 0.4])
    assert epochs_kept(tmp_path) == [2, 5]
    assert SnapshotDir(tmp_path / "snapshots").manifest(6).score == SnapshotScore("accuracy", 0.9)
    assert json.loads((tmp_path / "snapshots/000000000015/manifest.json").read_text())["score"]["value"] == 0.4


@pytest.mark.parametrize(
    ("accuracies", "options", "kept"),
    [
        ([0.9, 0.1, 0.5, 0.4], {"monitor": "-accuracy"}, [2, 4]),
        ([0.1, 0.9, 0.2], {"snapshot_policy": SnapshotPolicy(every_epochs=1, keep_last=1), "early": [1]}, [3]),
        ([0.1, float("nan"), 0.05], {}, [1, 3]),
    ],
    ids=["less is better with a minus", "a value of another step is no score of a snapshot", "nan is no score"],
)
def test_the_best_is_the_finite_value_of_the_step_of_a_snapshot_by_the_sign_of_the_name(
    tmp_path, accuracies, options, kept
):
    train(accuracies, **options)
    assert epochs_kept(tmp_path) == kept


def test_the_next_run_knows_the_best_of_the_one_before(tmp_path):
    train([0.1, 0.9, 0.5])
    train([0.1, 0.9, 0.5, 0.6, 0.7])
    assert epochs_kept(tmp_path) == [2, 5]
    train([0.1, 0.9, 0.5, 0.6, 0.7, 0.95, 0.3])
    assert epochs_kept(tmp_path) == [6, 7]
    train([0.1, 0.9, 0.5, 0.6, 0.7, 0.95, 0.3, 0.4], monitor=None)
    assert epochs_kept(tmp_path) == [6, 8], "the best one stays without a metric to monitor"


def test_a_metric_that_is_never_logged_is_named(tmp_path, caplog):
    train([0.1], monitor="acuracy")
    assert "monitor='acuracy': the script logged no such metric" in caplog.text


def test_a_name_that_is_none_is_refused():
    with pytest.raises(ValueError, match="best must be the name of a logged metric"):
        Run(model=torch.nn.Linear(1, 1), monitor="-")
