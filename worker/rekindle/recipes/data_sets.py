"""The data sets of the recipes (scikit-learn's digits, torchvision's image sets) and their loaders for evaluation."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

try:  # every recipe imports this module before any other that needs one of these
    import torchmetrics  # noqa: F401
    from sklearn.datasets import load_digits
    from torchvision import datasets, transforms
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"recipes need {error.name}, which is not installed in {sys.executable}: install what all recipes need, "
        f"by `{sys.executable} -m pip install torchvision torchmetrics scikit-learn`",
        name=error.name,
    ) from error

from rekindle.recipes.catalog import Options
from rekindle.recipes.models import Shape
from rekindle.training.data_loading import length_of
from rekindle.training.process_group import World
from rekindle.training.reporter import reporter
from rekindle.training.sampler import ElasticSampler

_UNREADABLE = (OSError, RuntimeError, ValueError, EOFError, AssertionError, TypeError, LookupError)
"""What torchvision raises where files are missing or have unexpected contents."""

_DIGITS_SIDE = 8  # pixels
_DIGITS_MAX = 16.0  # brightness
_DIGITS_TEST = 359  # of 1797 images; a prime, so that no number of ranks divides it

_EVALUATION_BATCH = 256  # samples per rank


class DataError(RuntimeError):
    """Raised where the data set is missing or damaged; the text names the directory and the remedy."""


@dataclass(frozen=True, slots=True)
class Data:
    """Images with their labels."""

    train: Dataset[Any]
    test: Dataset[Any]
    shape: Shape


@dataclass(frozen=True, slots=True)
class _Source:
    """A data set of torchvision and its normalization."""

    title: str
    kind: Callable[..., Dataset[Any]]
    directory: str  # within --data-dir
    shape: Shape
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    augmentation: tuple[Callable[[Any], Any], ...] = ()


_SOURCES = {
    "fashion-mnist": _Source(
        "Fashion-MNIST", datasets.FashionMNIST, "FashionMNIST/raw", Shape(10, 1, 28), (0.286,), (0.353,)
    ),
    "cifar10": _Source(
        "CIFAR-10",
        datasets.CIFAR10,
        "cifar-10-batches-py",
        Shape(10, 3, 32),
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
        (transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()),
    ),
}


def load(options: Options, world: World) -> Data:
    """Load the data set of ``options``, its images resized to what the model needs. All ranks call it.

    With ``--download`` rank 0 downloads what is missing while the others wait. Raises DataError on every rank.
    """
    side = 28 if options.model == "lenet" else None  # pixels; the other models accept any size
    if options.data == "digits":
        side = side or _DIGITS_SIDE
        train, test = digits(side)
        return Data(train, test, Shape(10, 1, side))
    source = _SOURCES[options.data]
    if options.download:
        reporter().update_status(phase="download")
        problem = world.broadcast(_download(source, options.data_dir) if world.rank == 0 else None)
        if problem is not None:
            raise DataError(problem)
    shape = replace(source.shape, side=side or source.shape.side)
    train_set, test_set = (_open(source, options.data_dir, shape, train=train) for train in (True, False))
    return Data(train_set, test_set, shape)


def evaluation_batches(
    dataset: Dataset[Any], mode: str, *, rank: int, ranks: int, workers: int, batch: int = _EVALUATION_BATCH
) -> DataLoader[Any]:
    """Make this rank's test batches. All ranks get equally many, so a model may do collectives in its forward pass.

    With ``exact`` each sample comes once, so shares differ by a sample. ``padded`` repeats the first samples until the
    shares are equal, which is simpler and shifts the accuracy a little, differently for every number of ranks.
    """
    generator = torch.Generator()  # a loader draws a number, which must not come from the training's generator
    if mode == "padded":
        padded: DistributedSampler[Any] = DistributedSampler(dataset, ranks, rank, shuffle=False)
        return DataLoader(dataset, batch, sampler=padded, num_workers=workers, generator=generator)
    sampler = ElasticSampler(length_of(dataset), batch * ranks, rank=rank, world_size=ranks, shuffle=False)
    # torch asks for its own Sampler class and uses __iter__ and __len__
    return DataLoader(dataset, batch_sampler=cast("Any", sampler), num_workers=workers, generator=generator)


class Images(TensorDataset):
    """Fetches whole batches: nothing is drawn at random here, so no sample needs random numbers of its own."""

    def __getitems__(self, indices: list[int]) -> list[tuple[Tensor, ...]]:
        columns = (tensor[indices].unbind() for tensor in self.tensors)
        return list(zip(*columns, strict=True))


def digits(side: int = _DIGITS_SIDE) -> tuple[Images, Images]:
    """Load scikit-learn's handwritten digits as training and test set, always split the same way.

    Images are 1 x side x side with values around 0.
    """
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, _DIGITS_SIDE, _DIGITS_SIDE) / _DIGITS_MAX - 0.5
    if side != _DIGITS_SIDE:
        x = interpolate(x, size=(side, side), mode="bilinear")
    y = torch.tensor(labels, dtype=torch.int64)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    train, test = order[_DIGITS_TEST:], order[:_DIGITS_TEST]
    return Images(x[train], y[train]), Images(x[test], y[test])


def _download(source: _Source, directory: Path) -> str | None:
    """Download, and return the error message, if any: the other ranks wait for the result."""
    try:
        for train in (True, False):
            source.kind(root=directory, train=train, download=True)
    except _UNREADABLE as error:
        return (
            f"{source.title} could not be downloaded to {directory.resolve()} ({_reason(error)}): copy the files to "
            f"{directory.resolve() / source.directory} yourself, or delete damaged ones there and try again"
        )
    return None


def _open(source: _Source, directory: Path, shape: Shape, *, train: bool) -> Dataset[Any]:
    path = directory.resolve() / source.directory
    augmentation = source.augmentation if train else ()
    resize = () if shape.side == source.shape.side else (transforms.Resize(shape.side),)
    normalize = transforms.Normalize(source.mean, source.deviation)
    transform = transforms.Compose([*augmentation, *resize, transforms.ToTensor(), normalize])
    try:
        dataset: Any = source.kind(root=directory, train=train, transform=transform)
        images, labels = len(dataset.data), len(dataset.targets)  # of two files, which torchvision does not compare
        if images != labels:
            raise ValueError(f"{images} images and {labels} labels")
    except _UNREADABLE as error:
        if path.is_dir():
            raise DataError(
                f"{source.title} in {path} is damaged or incomplete ({_reason(error)}): delete it and start with "
                "--download"
            ) from error
        raise DataError(
            f"{source.title} is not in {path}: name the directory that holds it with --data-dir, or let rank 0 "
            "download it with --download"
        ) from error
    return cast("Dataset[Any]", dataset)


def _reason(error: BaseException) -> str:
    """Text of ``error`` in one line."""
    return " ".join(str(error).split()) or f"torchvision could not read it: {type(error).__name__}"
