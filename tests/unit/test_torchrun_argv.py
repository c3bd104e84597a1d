from pathlib import Path

from rekindle.keeper.torchrun.agent_launcher import torchrun_argv
from rekindle.keeper.torchrun.node_plan import loopback_interfaces


def test_torchrun_restarts_nothing_and_warm_ranks_are_forks_but_cold_ones_fresh_interpreters():
    given = {"world_size": 3, "rendezvous_id": "abc.7", "log_dir": Path("/run/torchrun")}
    warm, cold = torchrun_argv(**given, warm=True), torchrun_argv(**given, warm=False)
    common = {"--nnodes=1", "--nproc-per-node=3", "--max-restarts=0", "--rdzv-id=abc.7", "--log-dir=/run/torchrun"}
    assert common <= set(warm) & set(cold)
    assert "--start-method=fork" in warm
    assert warm[-2] == "--run-path"
    assert Path(warm[-1]).is_file()
    assert cold[-2:] == ["-m", "rekindle.rank"]
    assert "--start-method=fork" not in cold


def test_ranks_listen_on_loopback_unless_the_job_names_an_interface():
    given = loopback_interfaces({"NCCL_SOCKET_IFNAME": "eth0"})
    assert given == {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}
