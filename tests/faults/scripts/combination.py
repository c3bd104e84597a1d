"""A small training of given parts, which dies at given places: the bits of all that it computes are printed.

    combination.py MODEL OPTIMIZER WORKERS EXTRA [RANK:STEP:PLACE...]

MODEL is ``cnn`` (with BatchNorm) or ``transformer`` (with dropout), OPTIMIZER ``sgd`` (momentum) or ``adamw``, WORKERS
the number of the loader's, EXTRA ``scheduler`` (one learning rate for each step) or ``amp`` (bfloat16, with a scaler).
The n-th attempt ends by SIGKILL of RANK in STEP, when the batch is ``loaded``, ``behind`` the backward pass, or when
the optimizer has ``stepped``; what snapshot is due before that is waited for.
"""

import hashlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from rekindle import Run, SnapshotPolicy
from rekindle.training.strategy import DDPStrategy

LENGTH, BATCH, EPOCHS, EVERY = 101, 12, 3, 4  # nine steps in an epoch, the last one with five samples
CLASSES, SIDE, WORDS, LONG = 4, 8, 16, 10


class Pictures(Dataset[tuple[Tensor, int]]):
    """Noise of a mean for each class, mirrored by chance."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        label = index % CLASSES
        picture = torch.randn(1, SIDE, SIDE) + label
        return picture.flip(-1) if random.random() < 0.5 else picture, label


class Sentences(Dataset[tuple[Tensor, int]]):
    """Words, some of them blotted out by chance."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        words = torch.arange(index, index + LONG) % (WORDS - 1) + 1
        return words * torch.from_numpy(np.random.random(LONG) < 0.8), index % CLASSES


class Cnn(nn.Sequential):
    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for inner, outer in ((1, 8), (8, 16), (16, 16)):
            layers += [nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU()]
        super().__init__(*layers, nn.Flatten(), nn.Linear(16 * SIDE * SIDE, CLASSES))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 32), nn.Parameter(torch.randn(LONG, 32) / 10)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.2, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, sentences: Tensor) -> Tensor:
        mixed: Tensor = self.layers(self.words(sentences) + self.places)
        logits: Tensor = self.head(mixed.mean(1))
        return logits


def digest(state: object) -> str:
    """Digest of every bit of what may be nested in dicts and lists."""
    sha = hashlib.sha256()

    def add(value: object) -> None:
        if isinstance(value, dict):
            for key in sorted(value, key=str):
                add(str(key))
                add(value[key])
        elif isinstance(value, list | tuple):
            for item in value:
                add(item)
        else:
            sha.update(value.detach().numpy().tobytes() if isinstance(value, Tensor) else repr(value).encode())

    add(state)
    return sha.hexdigest()


def die(rank: int, step: int, place: str) -> None:
    attempt, kills = int(os.environ["REKINDLE_ATTEMPT"]), sys.argv[5:]
    if attempt <= len(kills) and kills[attempt - 1] == f"{rank}:{step}:{place}":
        due = (step - 1) // EVERY * EVERY
        wait_for(Path(os.environ["REKINDLE_SNAPSHOT_DIR"]) / f"{due:012d}")
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for(snapshot: Path) -> None:
    """It is not waited for longer than a step may take: it can have been skipped, and there is none at first."""
    deadline = time.monotonic() + 0.5
    while not snapshot.exists() and time.monotonic() < deadline:
        time.sleep(0.005)


def main() -> None:
    kind, way, workers, extra = sys.argv[1:5]
    torch.manual_seed(0)
    model = Cnn() if kind == "cnn" else Transformer()
    data = Pictures() if kind == "cnn" else Sentences()
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        if way == "sgd"
        else torch.optim.AdamW(model.parameters(), lr=0.002)
    )
    amp = extra == "amp"
    scaler = torch.amp.GradScaler("cpu", enabled=amp, init_scale=1024.0, growth_interval=5)
    steps = EPOCHS * -(-LENGTH // BATCH)
    scheduler = None if amp else torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=steps)
    with Run(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        scaler=scaler,
        device="cpu",
        snapshot_policy=SnapshotPolicy(every_steps=EVERY),
        strategy=DDPStrategy(bucket_cap_mb=0.01),  # many buckets, as a large model has
    ) as run:
        for _ in run.epochs(EPOCHS):
            for x, y in run.batches(data, global_batch=BATCH, num_workers=int(workers)):
                step = run.step + 1
                die(run.rank, step, "loaded")
                optimizer.zero_grad()
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                    loss = nn.functional.cross_entropy(run.model(x), y) * run.batch_weight
                scaler.scale(loss).backward()
                die(run.rank, step, "behind")
                scaler.step(optimizer)
                scaler.update()
                if scheduler is not None:
                    scheduler.step()
                die(run.rank, step, "stepped")
                print(f"loss {step} {loss.item().hex()}", flush=True)
        parts = [part.state_dict() for part in (model, optimizer, scaler, scheduler) if part is not None]
        draws = [torch.get_rng_state(), random.getstate(), *map(str, np.random.get_state())]
        print(f"weights {digest(parts)}\ndraws {digest(draws)}", flush=True)


if __name__ == "__main__":
    main()
