"""A script that knows nothing of rekindle: saves to an absolute directory and resumes from its latest checkpoint.

train.py OUT HOW STEPS: HOW it saves is `file`, `rename`, `safetensors`, `sharded` or `trainer`.
"""

import os
import re
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

out, how, steps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
pause = float(sys.argv[4]) if len(sys.argv) > 4 else 0.02
dist.init_process_group("gloo")
rank = dist.get_rank()
state = {"weight": torch.ones(1000), "step": torch.tensor(0)}


def path_of(step: int) -> Path:
    names = {"file": f"epoch_{step}.pth.tar", "rename": "last.weights", "safetensors": "model.safetensors"}
    return out / names.get(how, f"checkpoint-{step}")


def save(step: int) -> None:
    path = path_of(step)
    state["step"] += 1
    match how:
        case "file":
            torch.save(state, path)
        case "rename":
            torch.save(state, f"{path}.tmp")
            os.replace(f"{path}.tmp", path)
        case "safetensors":
            from safetensors.torch import save_file

            save_file(state, path)
        case "sharded":
            import torch.distributed.checkpoint as dcp

            dcp.save(state, checkpoint_id=str(path), no_dist=True)
        case "trainer":
            path.mkdir()
            torch.save(state, path / "optimizer.pt")
            (path / "trainer_state.json").write_text("{}")


def load() -> int:
    found = sorted(out.glob("*"), key=lambda each: int("0" + "".join(re.findall(r"\d+", each.name))))
    found = [each for each in found if not each.name.endswith(".tmp") and ".torn" not in each.name]
    if not found:
        return 0
    match how:
        case "file" | "rename":
            state.update(torch.load(found[-1]))
        case "safetensors":
            from safetensors.torch import load_file

            state.update(load_file(found[-1]))
        case "sharded":
            import torch.distributed.checkpoint as dcp

            dcp.load(state, checkpoint_id=str(found[-1]), no_dist=True)
        case "trainer":
            state.update(torch.load(found[-1] / "optimizer.pt"))
    return int(state["step"])


out.mkdir(parents=True, exist_ok=True)
for step in range(load() + 1, steps + 1):
    dist.barrier()
    time.sleep(pause)
    if rank == 0:
        save(step)
        print(f"step {step}", flush=True)
print("every step done")
