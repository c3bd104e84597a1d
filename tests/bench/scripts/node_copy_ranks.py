"""One rank of ``tests/bench/node_copies.py``: takes snapshots in memory and prints what each has cost, as JSON."""

import json
import os
import sys
import time
from pathlib import Path

mode, count, megabytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if mode == "one machine":
    del os.environ["REKINDLE_NODE"]
    os.environ["LOCAL_WORLD_SIZE"] = os.environ["WORLD_SIZE"]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from rekindle import Snapshots  # noqa: E402
from rekindle.contract.run_dir.paths import RunDir  # noqa: E402

dist.init_process_group("gloo")
weights = {str(index): torch.randn(1 << 20) for index in range(megabytes // 4)}
snapshots = Snapshots(shm=RunDir(Path(os.environ["REKINDLE_RUN_DIR"])).memory)
figures = []
for step in range(count):
    dist.barrier()
    started, processor = time.monotonic(), time.process_time()
    snapshots.async_save(step, 0, {"model": weights}, {}, to_shm=True)
    blocked = time.monotonic() - started
    result = snapshots.wait()
    if result is None or not result.saved:
        raise SystemExit(f"not saved: {result}")
    figures.append([blocked, time.monotonic() - started, time.process_time() - processor])
started = time.monotonic()
if snapshots.restore() is None:
    raise SystemExit("nothing restored")
restored = time.monotonic() - started
dist.barrier()
sys.stdout.write(json.dumps({"figures": figures, "restored": restored}) + "\n")
dist.destroy_process_group()
