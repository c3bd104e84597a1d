from pathlib import Path

import pytest

from rekindle.contract.environment import RankEnv, attempt_environment, clean_environment, tracker_environment
from rekindle.contract.run_dir.paths import RunDir


@pytest.mark.parametrize("name", ["PET_NPROC_PER_NODE", "TORCHELASTIC_RUN_ID", "REKINDLE_TOKEN", "RANK", "MASTER_PORT",
                                  "GROUP_RANK", "ROLE_NAME", "WORLD_SIZE", "PYTHONPATH", "VIRTUAL_ENV", "WANDB_RUN_ID",
                                  "MLFLOW_RUN_ID"])  # fmt: skip
def test_what_another_torchrun_or_the_server_left_is_not_inherited(name):
    assert clean_environment({name: "x", "HOME": "/home/ada"}) == {"HOME": "/home/ada"}


@pytest.mark.parametrize("name", ["PATH", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "HF_HOME", "RANKED", "NCCL_DEBUG"])
def test_everything_else_is(name):
    assert clean_environment({name: "x"}) == {name: "x"}


def test_a_rank_knows_its_place_from_what_the_keeper_and_torchrun_set(tmp_path):
    run_dir = RunDir(tmp_path / "abc")
    set_by_keeper = attempt_environment(run_dir=run_dir, attempt=3, generation="3-f", snapshot_policy="{}")
    env = RankEnv.read({**set_by_keeper, "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"})
    assert (env.rank, env.local_rank, env.world_size, env.job_id, env.attempt) == (5, 1, 8, "abc", 3)
    assert env.rank_dir == run_dir.attempt(3).rank(5)
    assert env.snapshot_dir == run_dir.snapshots
    assert (env.generation, env.snapshot_policy) == ("3-f", "{}")


def test_the_snapshot_directory_is_the_same_for_every_attempt(tmp_path):
    made = [
        attempt_environment(run_dir=RunDir(tmp_path), attempt=number, generation="g", snapshot_policy="{}")
        for number in (1, 2)
    ]
    assert made[0]["REKINDLE_SNAPSHOT_DIR"] == made[1]["REKINDLE_SNAPSHOT_DIR"]
    assert made[0]["REKINDLE_ATTEMPT"] != made[1]["REKINDLE_ATTEMPT"]


def test_outside_rekindle_a_rank_is_a_world_of_one():
    env = RankEnv.read({})
    assert (env.rank, env.world_size, env.job_id, env.run_dir, env.rank_dir) == (0, 1, None, None, None)
    assert RankEnv.read({"REKINDLE_SNAPSHOT_DIR": "/s"}).snapshot_dir == Path("/s")


@pytest.mark.parametrize(("rank", "run_id"), [("0", "abc"), ("1", "abc-1")])
def test_a_run_of_wandb_goes_on_in_every_attempt_and_no_two_ranks_share_one(rank, run_id):
    for attempt in ("1", "2"):
        env = RankEnv.read({"REKINDLE_JOB_ID": "abc", "REKINDLE_ATTEMPT": attempt, "RANK": rank})
        assert tracker_environment(env, {}) == {"WANDB_RUN_ID": run_id, "WANDB_RESUME": "allow"}


@pytest.mark.parametrize("own", [{"WANDB_RUN_ID": "mine"}, {"WANDB_RESUME": "never"}, {"WANDB_RUN_ID": ""}])
def test_what_the_job_says_about_its_runs_stands(own):
    assert tracker_environment(RankEnv.read({"REKINDLE_JOB_ID": "abc"}), own) == {}


def test_outside_rekindle_no_run_is_named():
    assert tracker_environment(RankEnv.read({}), {}) == {}
