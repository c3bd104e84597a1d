"""DDP training that takes long before its first effect: it indexes files, reads one, and looks for its checkpoint.

Arguments: seconds that the start takes, steps, a directory of data, and seconds after each step. Saves every 5 steps.
"""

import hashlib
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

seconds, steps, data, pause = float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
checkpoint = Path("checkpoint.pt")

print("begins")
names = sorted(path.name for path in data.iterdir())
scale = float((data / names[0]).read_text())
time.sleep(seconds)
print("indexed", len(names), "scale", scale)

torch.manual_seed(0)
network = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
first = 1
if checkpoint.exists():
    state = torch.load(checkpoint)
    network.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"] + 1

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(network)
for step in range(first, steps + 1):
    generator = torch.Generator().manual_seed(step * 10 + rank)
    optimizer.zero_grad()
    (model(torch.randn(4, 8, generator=generator)) * scale).sum().backward()
    optimizer.step()
    print("step", step, flush=True)
    if step % 5 == 0 and rank == 0:
        temporary = Path("checkpoint.tmp")
        torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, temporary)
        temporary.replace(checkpoint)
    weights = b"".join(each.detach().numpy().tobytes() for each in network.parameters())
    print("weights", step, hashlib.sha256(weights).hexdigest(), flush=True)
    dist.barrier()
    time.sleep(pause)
dist.destroy_process_group()
