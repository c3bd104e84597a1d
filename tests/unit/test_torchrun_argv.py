from pathlib import Path

import pytest

from rekindle.keeper.torchrun.interfaces import loopback_interfaces
from rekindle.keeper.torchrun.launcher import torchrun_argv


def argv(*, warm, world_size=3):
    return torchrun_argv(world_size=world_size, rendezvous_id="abc.7", log_dir=Path("/run/torchrun"), warm=warm)


@pytest.mark.parametrize("warm", [True, False])
def test_torchrun_restarts_nothing_on_one_node(warm):
    given = argv(warm=warm)
    assert {"--nnodes=1", "--nproc-per-node=3", "--max-restarts=0", "--rdzv-id=abc.7",
            "--log-dir=/run/torchrun"} <= set(given)  # fmt: skip


def test_warm_ranks_are_forks_and_cold_ones_fresh_interpreters():
    warm, cold = argv(warm=True), argv(warm=False)
    assert "--start-method=fork" in warm
    assert warm[-2] == "--run-path"
    assert Path(warm[-1]).is_file()
    assert cold[-2:] == ["-m", "rekindle.rank"]
    assert "--start-method=fork" not in cold


def test_ranks_listen_on_loopback_unless_the_job_names_an_interface():
    given = loopback_interfaces({"NCCL_SOCKET_IFNAME": "eth0"})
    assert given == {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}
