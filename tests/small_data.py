"""A few made-up images in the formats that torchvision reads."""

import gzip
import hashlib
import pickle
import struct
from pathlib import Path

import numpy as np


def write_fashion_mnist(directory: Path, *, train: int, test: int) -> None:
    """IDX files: a big-endian header with the sizes, then the bytes."""
    raw = directory / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    draw = np.random.default_rng(0)
    for prefix, count in (("train", train), ("t10k", test)):
        images, labels = draw.integers(0, 256, (count, 28, 28), np.uint8), draw.integers(0, 10, count, np.uint8)
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + images.tobytes())
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())


def pack_fashion_mnist(directory: Path, served: Path) -> None:
    """What is in ``directory``, as a mirror serves it."""
    served.mkdir(parents=True)
    for path in (directory / "FashionMNIST" / "raw").iterdir():
        (served / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))


def write_cifar10(directory: Path, *, per_batch: int) -> dict[str, str]:
    """Pickled batches, as the Python version of CIFAR-10 has them; returns the MD5 of each file."""
    place = directory / "cifar-10-batches-py"
    place.mkdir(parents=True)
    draw = np.random.default_rng(0)
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        images, labels = draw.integers(0, 256, (per_batch, 3072), np.uint8), draw.integers(0, 10, per_batch).tolist()
        (place / name).write_bytes(pickle.dumps({"data": images, "labels": labels}))
    (place / "batches.meta").write_bytes(pickle.dumps({"label_names": [str(number) for number in range(10)]}))
    return {path.name: hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() for path in place.iterdir()}
