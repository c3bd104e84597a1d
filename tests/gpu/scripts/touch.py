"""Each rank uses its device and says how its process came to be; all fail in the first attempt."""

import os
import time
from pathlib import Path

import torch

count = torch.cuda.device_count()
fork = "bad" if torch.cuda._is_in_bad_fork() else "good"
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count) if count else torch.device("cpu")
torch.ones(8, device=device).sum().item()
print(f"{fork} fork, used {device.type} at {time.monotonic()}", flush=True)
if os.environ["REKINDLE_ATTEMPT"] == "1":
    folder = Path(os.environ["REKINDLE_SNAPSHOT_DIR"])
    (folder / f"used-{os.environ['RANK']}").touch()
    while len(list(folder.glob("used-*"))) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.01)
    raise ValueError("planted")
