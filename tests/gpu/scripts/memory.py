"""Takes more than half of the memory of the GPU, in each attempt; is killed while it has it in the first."""

import os
import signal
import time

import torch

_, total = torch.cuda.mem_get_info(0)
held = torch.empty(int(0.6 * total), dtype=torch.uint8, device="cuda:0")
held.fill_(1)
torch.cuda.synchronize()
print(f"took it at {time.monotonic()}", flush=True)
if os.environ["REKINDLE_ATTEMPT"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
