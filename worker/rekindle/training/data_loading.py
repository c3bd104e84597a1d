"""Loaders that draw nothing from the training's random numbers, and whose samples depend on nothing but their index."""

import os
import signal
from collections.abc import Callable, Sized
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from rekindle.contract.processes import die_with_parent
from rekindle.training import rng
from rekindle.training.rng import derived_seed

Collate = Callable[[list[Any]], Any]


class KeyedDataset(Dataset[Any]):
    """A data set whose random augmentation is keyed to (seed, epoch, index).

    A sample is the same whichever process loads it and wherever an epoch was interrupted. What the data set draws in
    the training process leaves no trace there. A data set that fetches whole batches (``__getitems__``) is keyed by
    the first index of the batch.
    """

    def __init__(self, dataset: Dataset[Any], seed: int, epoch: int) -> None:
        self._dataset, self._seed, self._epoch = dataset, seed, epoch

    def __len__(self) -> int:
        return length_of(self._dataset)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        with nullcontext() if get_worker_info() is not None else rng.preserved():
            fetch = getattr(self._dataset, "__getitems__", None)
            if callable(fetch):
                self._key(indices[0])
                return cast("list[Any]", fetch(indices))
            return [self[index] for index in indices]

    def __getitem__(self, index: int) -> Any:
        self._key(index)
        return self._dataset[index]

    def _key(self, index: int) -> None:
        rng.seed_cpu(derived_seed(self._seed, self._epoch, index))


def _init_worker(rank_pid: int, _worker: int) -> None:
    """Let a loader's process die with its rank, but not by a SIGTERM to the group before the snapshot is taken."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.getppid() == rank_pid:
        die_with_parent(rank_pid)


def data_loader(dataset: KeyedDataset, num_workers: int, collate: Collate | None, **batching: Any) -> DataLoader[Any]:
    """Make a loader; ``batching`` is ``batch_size``, or ``batch_sampler``, of which torch needs only an iterator."""
    return DataLoader(
        dataset,
        num_workers=num_workers,
        collate_fn=collate,
        generator=torch.Generator(),
        worker_init_fn=partial(_init_worker, os.getpid()),
        **batching,
    )


def length_of(dataset: Dataset[Any]) -> int:
    """Number of samples. Raises TypeError for a stream: without a length there is no order to resume."""
    if not isinstance(dataset, Sized):
        raise TypeError(f"{type(dataset).__name__} has no length; exact resume needs a data set with __len__")
    return len(dataset)


def to_device(batch: Any, device: torch.device) -> Any:
    """Copy every tensor in ``batch`` to ``device``, also within lists, tuples and dicts."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(value, device) for value in batch)
    return batch
