from pathlib import Path

import pytest

from rekindle.keeper.torchrun.launcher import torchrun_argv


def argv(*, warm, world_size=3):
    return torchrun_argv(world_size=world_size, rendezvous_id="abc.7", log_dir=Path("/run/torchrun"), warm=warm)


@pytest.mark.parametrize("warm", [True, False])
def test_torchrun_restarts_nothing_and_shares_no_store_between_attempts(warm):
    given = argv(warm=warm)
    assert {"--nnodes=1", "--nproc-per-node=3", "--max-restarts=0", "--rdzv-id=abc.7", "--rdzv-endpoint=localhost:0",
            "--rdzv-backend=c10d", "--log-dir=/run/torchrun"} <= set(given)  # fmt: skip


def test_warm_ranks_are_forks_and_cold_ones_fresh_interpreters():
    warm, cold = argv(warm=True), argv(warm=False)
    assert "--start-method=fork" in warm
    assert warm[-2] == "--run-path"
    assert Path(warm[-1]).is_file()
    assert cold[-2:] == ["-m", "rekindle.rank"]
    assert "--start-method=fork" not in cold
