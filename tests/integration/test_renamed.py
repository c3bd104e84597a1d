"""A script that was written for version 0.1.0 runs unchanged: its job may be resumed after an upgrade."""

import pytest
import torch

import rekindle
from rekindle import Run, SnapshotPolicy, Snapshots


def test_the_old_names_of_policy_and_options_are_accepted_with_a_warning(tmp_path, monkeypatch):
    monkeypatch.setenv("REKINDLE_SNAPSHOT_DIR", str(tmp_path))
    with pytest.warns(FutureWarning, match=r"rekindle.Cadence is now called rekindle.SnapshotPolicy"):
        policy = rekindle.Cadence(4, keep=2, best="-loss")
    assert policy == SnapshotPolicy(every_steps=4, keep_last=2, monitor="-loss")
    data = torch.utils.data.TensorDataset(torch.arange(8.0).unsqueeze(1))
    with pytest.warns(FutureWarning, match=r"(cadence|best)= is now called (snapshot_policy|monitor)="):
        training = Run(model=torch.nn.Linear(1, 1), device="cpu", cadence=policy, best="accuracy")
    with training as run:
        for _ in run.epochs(1):
            for (batch,) in run.batches(data, global_batch=2):
                with pytest.warns(FutureWarning, match=r"Run.parts is now called Run.microbatches"):
                    assert len(list(run.parts(batch))) == 1
                run.log(loss=1.0, accuracy=0.5)
    with pytest.warns(FutureWarning, match=r"keep= is now called keep_last="):
        snapshots = Snapshots(tmp_path, keep=1)
    with pytest.warns(FutureWarning, match=r"Snapshots.newest is now called Snapshots.latest"):
        assert snapshots.newest().step == 4


def test_a_name_that_never_existed_is_refused(tmp_path):
    run = Run(model=torch.nn.Linear(1, 1), device="cpu", directory=tmp_path)
    with pytest.raises(AttributeError, match="no attribute 'portions'"):
        _ = run.portions
