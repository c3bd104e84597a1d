"""The shape of the FSDP2 tutorial with torch.distributed.checkpoint: a directory per step, a file per rank in it."""

import argparse
import os
import re
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class AppState:
    """Model and optimizer as one Stateful."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model_state, optimizer_state = get_state_dict(self.model, self.optimizer)
        return {"model": model_state, "optim": optimizer_state}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])


def latest_step(folder):
    """Of the directories that are whole, which is what .metadata says."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    whole = [name for name in names if os.path.exists(os.path.join(folder, name, ".metadata"))]
    return max((int(found[1]) for name in whole if (found := re.fullmatch(r"step-(\d+)", name))), default=0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint-dir", default="checkpoints")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0.15, help="seconds that a step takes longer")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    step = latest_step(args.checkpoint_dir)
    if step:
        dcp.load({"app": AppState(model, optimizer)}, checkpoint_id=os.path.join(args.checkpoint_dir, f"step-{step}"))
        print(f"loaded step {step}")
    while step < args.steps:
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1000 * step + dist.get_rank()))
        loss = (model(x) - x.flip(1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(args.pause)
        step += 1
        if dist.get_rank() == 0:
            print(f"step {step}/{args.steps} loss {loss.item():.6f}", flush=True)
        if step % args.save_every == 0:
            path = os.path.join(args.checkpoint_dir, f"step-{step}")
            dcp.save({"app": AppState(model, optimizer)}, checkpoint_id=path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
