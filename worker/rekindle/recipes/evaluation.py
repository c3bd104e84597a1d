"""Test batches for each rank: every sample once, or padded as DistributedSampler pads."""

from typing import Any, cast

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from rekindle.training.data.data_loading import length_of
from rekindle.training.data.sampler import ElasticSampler

BATCH = 256  # samples of each rank


def evaluation_batches(
    dataset: Dataset[Any], how: str, *, rank: int, ranks: int, workers: int, batch: int = BATCH
) -> DataLoader[Any]:
    """This rank's batches. All ranks get equally many, so a model may do collectives in its forward pass.

    ``exact`` cuts each sample out once, so shares differ by a sample. ``padded`` repeats the first samples until the
    shares are equal, which is simpler and shifts the accuracy a little, differently for every number of ranks.
    """
    generator = torch.Generator()  # a loader draws a number, which must not come from the training's
    if how == "padded":
        padded: DistributedSampler[Any] = DistributedSampler(dataset, ranks, rank, shuffle=False)
        return DataLoader(dataset, batch, sampler=padded, num_workers=workers, generator=generator)
    sampler = ElasticSampler(length_of(dataset), batch * ranks, rank=rank, world_size=ranks, shuffle=False)
    # torch asks for its own Sampler class and uses __iter__ and __len__
    return DataLoader(dataset, batch_sampler=cast("Any", sampler), num_workers=workers, generator=generator)
