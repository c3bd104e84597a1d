from pathlib import Path

from rekindle.contract.environment import RankEnv, attempt_environment, clean_environment, tracker_environment
from rekindle.contract.run_dir.paths import RunDir


def test_what_another_torchrun_or_the_server_left_is_not_inherited_but_everything_else_is():
    own = ("HOME", "PATH", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "HF_HOME", "RANKED", "NCCL_DEBUG")
    of_torchrun = ("PET_NPROC_PER_NODE", "TORCHELASTIC_RUN_ID", "RANK", "GROUP_RANK", "ROLE_NAME", "WORLD_SIZE")
    of_server = ("MASTER_PORT", "REKINDLE_TOKEN", "PYTHONPATH", "VIRTUAL_ENV", "WANDB_RUN_ID", "MLFLOW_RUN_ID")
    inherited = clean_environment(dict.fromkeys((*own, *of_torchrun, *of_server), "x"))
    assert inherited == dict.fromkeys(own, "x")


def test_a_rank_knows_its_position_from_what_the_keeper_and_torchrun_set(tmp_path):
    run_dir = RunDir(tmp_path / "abc")
    set_by_keeper = attempt_environment(run_dir=run_dir, attempt=3, generation="3-f", snapshot_policy="{}")
    env = RankEnv.read({**set_by_keeper, "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"})
    assert (env.rank, env.local_rank, env.world_size, env.job_id, env.attempt) == (5, 1, 8, "abc", 3)
    assert env.rank_dir == run_dir.attempt(3).rank(5)
    assert env.snapshot_dir == run_dir.snapshots
    assert (env.generation, env.snapshot_policy) == ("3-f", "{}")


def test_outside_rekindle_a_rank_is_a_world_of_one():
    env = RankEnv.read({})
    assert (env.rank, env.world_size, env.job_id, env.run_dir, env.rank_dir) == (0, 1, None, None, None)
    assert RankEnv.read({"REKINDLE_SNAPSHOT_DIR": "/s"}).snapshot_dir == Path("/s")


def test_a_run_of_wandb_continues_in_every_attempt_and_no_two_ranks_share_one():
    for rank, run_id in (("0", "abc"), ("1", "abc-1")):
        for attempt in ("1", "2"):
            env = RankEnv.read({"REKINDLE_JOB_ID": "abc", "REKINDLE_ATTEMPT": attempt, "RANK": rank})
            assert tracker_environment(env, {}) == {"WANDB_RUN_ID": run_id, "WANDB_RESUME": "allow"}


def test_no_run_is_named_outside_rekindle_or_where_the_job_names_its_own():
    assert tracker_environment(RankEnv.read({}), {}) == {}
    for own in ({"WANDB_RUN_ID": "mine"}, {"WANDB_RESUME": "never"}, {"WANDB_RUN_ID": ""}):
        assert tracker_environment(RankEnv.read({"REKINDLE_JOB_ID": "abc"}), own) == {}
