"""Checkpoints of every epoch in a directory; the one of the latest epoch is loaded."""

from pathlib import Path

import torch


def save(directory, epoch, **parts):
    Path(directory).mkdir(parents=True, exist_ok=True)
    path = Path(directory) / f"epoch_{epoch:04d}.pth"
    temporary = path.with_suffix(".part")
    torch.save({name: part.state_dict() for name, part in parts.items()}, temporary)
    temporary.rename(path)


def load_latest(directory, **parts):
    """The epoch that comes next."""
    found = sorted(Path(directory).glob("epoch_*.pth"))
    if not found:
        return 0
    for name, state in torch.load(found[-1]).items():
        parts[name].load_state_dict(state)
    return int(found[-1].stem.removeprefix("epoch_")) + 1
