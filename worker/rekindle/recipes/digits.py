"""Handwritten digits that scikit-learn ships: real data without a download."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import TensorDataset

CLASSES = 10
SIDE = 8  # pixels
_TEST = 359  # of 1797 images; a prime, so that no number of ranks divides it
_BRIGHTEST = 16.0


class Images(TensorDataset):
    """Gives whole batches: nothing is drawn at random here, so no sample needs random numbers of its own."""

    def __getitems__(self, indices: list[int]) -> list[tuple[Tensor, ...]]:
        columns = (tensor[indices].unbind() for tensor in self.tensors)
        return list(zip(*columns, strict=True))


def digits(side: int = SIDE) -> tuple[Images, Images]:
    """Training and test set, split the same way every time; images are 1 x side x side with values around 0."""
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, SIDE, SIDE) / _BRIGHTEST - 0.5
    if side != SIDE:
        x = interpolate(x, size=(side, side), mode="bilinear")
    y = torch.tensor(labels, dtype=torch.int64)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    return _subset(x, y, order[_TEST:]), _subset(x, y, order[:_TEST])


def _subset(x: Tensor, y: Tensor, indices: Tensor) -> Images:
    return Images(x[indices], y[indices])
