"""A script that knows nothing of rekindle: saves in five ways below OUT, and resumes each from its latest checkpoint.

train.py OUT STEPS TEAR: it is killed once while it saves step TEAR, which leaves half of a file.
"""

import io
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

out, steps, tear = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo")
state = {"weight": torch.ones(1000), "step": torch.tensor(0)}


def save_file(directory: Path, step: int) -> None:
    path = directory / f"epoch_{step}.pth.tar"
    if step == tear and not (out / "torn").exists():
        (out / "torn").touch()
        whole = io.BytesIO()
        torch.save(state, whole)
        path.write_bytes(whole.getvalue()[:-100])
        os.kill(os.getpid(), signal.SIGKILL)
    torch.save(state, path)


def save_renamed(directory: Path, _step: int) -> None:
    torch.save(state, directory / "weights.tmp")
    (directory / "weights.tmp").replace(directory / "last.weights")


def save_safetensors(directory: Path, _step: int) -> None:
    from safetensors.torch import save_file

    save_file(state, directory / "model.safetensors")


def save_sharded(directory: Path, step: int) -> None:
    dcp.save(state, checkpoint_id=str(directory / f"step-{step}"), no_dist=True)


def save_trainer(directory: Path, step: int) -> None:
    checkpoint = directory / f"tmp-checkpoint-{step}"
    checkpoint.mkdir()
    shutil.rmtree(directory / f"checkpoint-{step}", ignore_errors=True)
    torch.save(state, checkpoint / "optimizer.pt")
    (checkpoint / "trainer_state.json").write_text("{}")
    checkpoint.rename(directory / f"checkpoint-{step}")


def load_safetensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(path)


def load_sharded(path: Path) -> dict[str, torch.Tensor]:
    dcp.load(state, checkpoint_id=str(path), no_dist=True)
    return state


WAYS: dict[str, tuple[Callable[[Path, int], None], Callable[[Path], dict[str, torch.Tensor]]]] = {
    "renamed": (save_renamed, torch.load),
    "safetensors": (save_safetensors, load_safetensors),
    "sharded": (save_sharded, load_sharded),
    "trainer": (save_trainer, lambda path: torch.load(path / "optimizer.pt")),
    "file": (save_file, torch.load),
}


def latest(directory: Path) -> Path | None:
    found = [path for path in directory.iterdir() if not re.search(r"torn|tmp", path.name)]
    return max(found, key=lambda path: int("0" + "".join(re.findall(r"\d+", path.name))), default=None)


first = 1
for name, (_, load) in WAYS.items():
    (out / name).mkdir(parents=True, exist_ok=True)
    if (path := latest(out / name)) is not None:
        state.update(load(path))
        first = int(state["step"]) + 1
        print(f"loaded {path.relative_to(out)}", flush=True)
for step in range(first, steps + 1):
    dist.barrier()
    state["step"] = torch.tensor(step)
    for name, (save, _) in WAYS.items():
        save(out / name, step)
    print(f"iter {step}: loss {1 / step:.3f}", flush=True)
print("every step done")
