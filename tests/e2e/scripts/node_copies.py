"""Takes or restores snapshots of a made-up state, as ranks of several machines do.

``save STEP…``: in memory, where STEP ends in ``d`` on disk. ``restore``: prints what came back, as JSON; then
``restore save STEP`` saves on. SHARDED=1 shards the weight among the ranks. ``seen:NAME`` prints whether that is in the
directory of snapshots. PEEK=1 has rank 0 look for another rank's file before that is written, and others for the
snapshot that is not committed yet, as caches of a network file system must not mind.
"""

import hashlib
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from rekindle import Snapshots
from rekindle.contract.run_dir.paths import RunDir
from rekindle.training.snapshots import writer

ROWS, COLUMNS = 10, int(os.environ.get("WEIGHT_COLUMNS", "300000"))  # 12 MB: several messages


def weight(step: int) -> torch.Tensor:
    return torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(step))


def state(step: int) -> dict:
    whole = weight(step)
    if "SHARDED" in os.environ:
        hybrid = dist.get_world_size() == 4 and os.environ["SHARDED"] == "hybrid"
        shape, ways = ((2, 2), [Replicate(), Shard(0)]) if hybrid else ((dist.get_world_size(),), [Shard(0)])
        whole = distribute_tensor(whole, init_device_mesh("cpu", shape), ways, src_data_rank=None)
    return {"model": {"weight": whole}, "step": step}


def digest(tensor: torch.Tensor) -> str:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return hashlib.sha256(local.contiguous().numpy().tobytes()).hexdigest()


def restore(snapshots: Snapshots) -> dict | None:
    found = snapshots.restore()
    if found is None:
        return None
    expected = state(found.step)["model"]["weight"]
    return {
        "step": found.step,
        "from_disk": found.from_disk,
        "same": digest(found.shared_state["model"]["weight"]) == digest(expected),
        "former": [each["rank"] for each in found.rank_states],
        "skipped": [asdict(each) for each in found.skipped],
        "files": sorted(path.name for path in Path("/dev/shm").glob("rekindle-*/*/.tmp*/*")),  # noqa: S108
    }


def save(snapshots: Snapshots, word: str) -> str | None:
    to_shm = not word.endswith("d")
    step = int(word.removesuffix("d"))
    snapshots.async_save(step, 0, state(step), {"rank": dist.get_rank()}, to_shm=to_shm)
    return snapshots.wait().problem


def peek() -> None:
    """Rank 0 first, then the others, by a flag that no cache hides."""
    write_state, flag = writer.write_state, Path(os.environ["OUT"], "peeked")

    def instead(path: Path, own: dict) -> object:
        if dist.get_rank() == 0:
            assert not (path.parent / "rank-1.pt").exists()
            flag.touch()
        else:
            while not flag.exists():
                time.sleep(0.01)
            assert not (path.parent.parent / path.parent.name.rpartition("-")[2]).exists()
        return write_state(path, own)

    writer.write_state = instead


def main() -> None:
    if "PEEK" in os.environ:
        peek()
    dist.init_process_group("gloo")
    memory = RunDir(Path(os.environ["REKINDLE_RUN_DIR"])).memory
    snapshots = Snapshots(shm=memory, layout=lambda: state(0))
    told: list = []
    for word in sys.argv[1:]:
        if word.startswith("seen:"):
            told.append(Path(os.environ["REKINDLE_SNAPSHOT_DIR"], word.removeprefix("seen:")).exists())
        elif word == "restore":
            told.append(restore(snapshots))
        elif word != "save":
            told.append(save(snapshots, word))
    dist.barrier()
    sys.stdout.write(json.dumps(told) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
