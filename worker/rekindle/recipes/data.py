"""The data sets of the recipes: digits that are always there, and torchvision's where they are or may be downloaded."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset
from torchvision import datasets, transforms

from rekindle.recipes import digits
from rekindle.recipes.options import Options
from rekindle.training.process_group import World
from rekindle.training.reporting.reporter import reporter

_UNREADABLE = (OSError, RuntimeError, ValueError, EOFError, AssertionError, TypeError, LookupError)
"""What torchvision raises where files are missing or not what they should be."""


class DataError(RuntimeError):
    """The data set is missing or damaged; the text says where it was looked for, and what to do."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model must know about the data."""

    classes: int
    channels: int
    side: int  # pixels; images are square


@dataclass(frozen=True, slots=True)
class Data:
    """Images with their labels."""

    train: Dataset[Any]
    test: Dataset[Any]
    shape: Shape


@dataclass(frozen=True, slots=True)
class _Source:
    """A data set of torchvision."""

    title: str
    kind: Callable[..., Dataset[Any]]
    folder: str  # within --data-dir
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


def load(options: Options, world: World, *, side: int | None = None) -> Data:
    """The data set of ``options``, its images resized to ``side`` where one is given. All ranks call it.

    With ``--download`` rank 0 downloads what is missing while the others wait. Raises DataError on every rank.
    """
    if options.data == "digits":
        train, test = digits.digits(side or digits.SIDE)
        return Data(train, test, Shape(digits.CLASSES, 1, side or digits.SIDE))
    source = _SOURCES[options.data]
    if options.download:
        reporter().update_status(phase="download")
        problem = world.broadcast(_download(source, options.data_dir) if world.rank == 0 else None)
        if problem is not None:
            raise DataError(problem)
    shape = Shape(source.shape.classes, source.shape.channels, side or source.shape.side)
    return Data(
        _open(source, options.data_dir, shape, train=True), _open(source, options.data_dir, shape, train=False), shape
    )


def _download(source: _Source, folder: Path) -> str | None:
    """What went wrong, if anything did. It is the others' turn then too, so nothing may be raised."""
    try:
        source.kind(root=folder, train=True, download=True)
        source.kind(root=folder, train=False, download=True)
    except _UNREADABLE as error:
        return (
            f"{source.title} could not be downloaded to {folder.resolve()} ({_reason(error)}): bring the files to "
            f"{folder.resolve() / source.folder} yourself, or delete what is damaged there and start again"
        )
    return None


def _open(source: _Source, folder: Path, shape: Shape, *, train: bool) -> Dataset[Any]:
    place = folder.resolve() / source.folder
    try:
        found = source.kind(root=folder, train=train, transform=_transform(source, shape, train=train))
        _refuse_halves(found)
    except _UNREADABLE as error:
        if place.is_dir():
            raise DataError(
                f"{source.title} in {place} is damaged or incomplete ({_reason(error)}): delete it and start with "
                "--download"
            ) from error
        raise DataError(
            f"{source.title} is not in {place}: name the folder that holds it with --data-dir, or let rank 0 fetch it "
            "with --download"
        ) from error
    return found


def _refuse_halves(dataset: Any) -> None:
    """Images and labels are in different files, and torchvision does not compare them."""
    if len(dataset.data) != len(dataset.targets):
        raise ValueError(f"{len(dataset.data)} images and {len(dataset.targets)} labels")


def _reason(error: BaseException) -> str:
    """In one line."""
    return " ".join(str(error).split()) or f"torchvision could not read it: {type(error).__name__}"


def _transform(source: _Source, shape: Shape, *, train: bool) -> Callable[[Any], Any]:
    augmentation = source.augmentation if train else ()
    resize = () if shape.side == source.shape.side else (transforms.Resize(shape.side),)
    normalise = transforms.Normalize(source.mean, source.deviation)
    steps: Callable[[Any], Any] = transforms.Compose([*augmentation, *resize, transforms.ToTensor(), normalise])
    return steps
