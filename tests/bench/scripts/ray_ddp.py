"""The training of ``plain_ddp.py`` under Ray Train: its checkpoints, and restarts without a limit."""

import argparse
import os
import tempfile
from pathlib import Path

import ray
import ray.train
import torch
import torch.distributed as dist
from plain_ddp import Trainer, parsed
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


class RayTrainer(Trainer):
    def load(self) -> None:
        if checkpoint := ray.train.get_checkpoint():
            with checkpoint.as_directory() as directory:
                self.restore(torch.load(Path(directory, "snapshot.pt"), weights_only=True))

    def save(self, step: int) -> None:
        with tempfile.TemporaryDirectory() as directory:
            checkpoint = None
            if self.rank == 0:
                torch.save({**self.state(), "step": step}, Path(directory, "snapshot.pt"))
                checkpoint = Checkpoint.from_directory(directory)
            ray.train.report({"step": step}, checkpoint=checkpoint)


def train(config: dict) -> None:
    RayTrainer(argparse.Namespace(**config), dist.get_rank()).train()


if __name__ == "__main__":
    options = parsed()
    variables = {name: os.environ[name] for name in ("BENCH_DIR", "OMP_NUM_THREADS", "PYTHONPATH")}
    ray.init(address=os.environ["RAY_ADDRESS"], runtime_env={"env_vars": variables})
    TorchTrainer(
        train,
        train_loop_config=vars(options),
        torch_config=TorchConfig(backend="gloo", timeout_s=int(options.timeout)),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=f"{variables['BENCH_DIR']}/ray",
            failure_config=FailureConfig(max_failures=-1),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    ).fit()
