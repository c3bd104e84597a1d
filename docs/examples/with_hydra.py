"""Hydra: submitted with ``hydra.run.dir=outputs/run``, so that every attempt has the same output directory."""

import time
from pathlib import Path

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

STEPS = 60


@hydra.main(version_base=None)
def main(config: DictConfig) -> None:
    snapshot = Path(HydraConfig.get().runtime.output_dir) / "snapshot.pt"
    first = torch.load(snapshot, weights_only=True)["steps"] if snapshot.exists() else 0
    print("first step", first)
    for step in range(first, STEPS):
        torch.save({"steps": step + 1}, snapshot.with_suffix(".tmp"))
        snapshot.with_suffix(".tmp").replace(snapshot)
        time.sleep(config.get("pause", 0.05))


if __name__ == "__main__":
    main()
