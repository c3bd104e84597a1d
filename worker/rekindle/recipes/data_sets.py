"""The data sets of the recipes (digits of scikit-learn, Fashion-MNIST, CIFAR-10) and their loaders for evaluation."""

import gzip
import math
import struct
import sys
import zlib
from collections.abc import Callable, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, TensorDataset

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
from rekindle.training.sampler import shard_range

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
"""Directory of Debian's package dataset-fashion-mnist."""

_UNREADABLE = (
    OSError, RuntimeError, ValueError, EOFError, AssertionError, TypeError, LookupError, struct.error, zlib.error,
)  # fmt: skip
"""What torchvision and the reader of IDX files raise where files are missing or have unexpected contents."""

_DIGITS_SIDE = 8  # pixels
_DIGITS_MAX = 16.0  # brightness
_DIGITS_TEST = 359  # of 1797 images; a prime, so that no number of ranks divides it

_IDX_BYTES = bytes([0, 0, 8])  # with which an IDX file of unsigned bytes begins; the number of dimensions follows
_PER_CLASS = 6000  # training images of Fashion-MNIST
_TEST_SET = 10_000  # images of Fashion-MNIST and of CIFAR-10

_EVALUATION_BATCH = 256  # samples per rank


class DataError(RuntimeError):
    """Raised where the data set is missing or damaged; the text names the directory and the remedy."""


@dataclass(frozen=True, slots=True)
class Data:
    """Images with their labels, and where they come from."""

    train: Dataset[Any]
    test: Dataset[Any]
    shape: Shape
    origin: str

    def __str__(self) -> str:
        """Say in one sentence which data these are, and with what an accuracy can be compared."""
        train, test = length_of(self.train), length_of(self.test)
        others = "published results on this test set" if test == _TEST_SET else "runs on the same images alone"
        return (
            f"data: {self.origin}, {train} images for training and {test} for the test; one of these is "
            f"{100 / test:.2g} points of accuracy, which compares with {others}"
        )


@dataclass(frozen=True, slots=True)
class _Source:
    """A data set that torchvision can download, and its normalization."""

    title: str
    kind: Callable[..., Dataset[Any]]
    directory: str  # within --data-dir
    package: str  # of Debian; "" where there is none
    shape: Shape
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    augmentation: tuple[Callable[[Any], Any], ...] = ()

    def find(self, data_dir: Path) -> Path | None:
        """Find the directory with the files: within ``data_dir``, else that of Debian's package."""
        places = [data_dir.resolve() / self.directory]
        if self.package:
            places += [place for place in (data_dir.resolve(), DEBIAN) if any(place.glob("*-idx[13]-ubyte*"))]
        return next((place for place in places if place.is_dir()), None)


_SOURCES = {
    "fashion-mnist": _Source(
        "Fashion-MNIST",
        datasets.FashionMNIST,
        "FashionMNIST/raw",
        "dataset-fashion-mnist",
        Shape(10, 1, 28),
        (0.286,),
        (0.353,),
    ),
    "cifar10": _Source(
        "CIFAR-10",
        datasets.CIFAR10,
        "cifar-10-batches-py",
        "",
        Shape(10, 3, 32),
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
        (transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()),
    ),
}


def load(options: Options, world: World) -> Data:
    """Load the data set of ``options``, its images resized to what the model needs. All ranks call it.

    They are in ``--data-dir`` or Debian's package; with ``--download`` rank 0 downloads what is in neither, while the
    others wait. Raises DataError on every rank.
    """
    side = 28 if options.model == "lenet" else None  # pixels; the other models accept any size
    if options.data == "digits":
        side = side or _DIGITS_SIDE
        own = digits(side)
        return Data(_first(own[0], options.train_images), own[1], Shape(10, 1, side), "the digits of scikit-learn")
    source = _SOURCES[options.data]
    if options.download:
        reporter().update_status(phase="download")
        missing = world.rank == 0 and source.find(options.data_dir) is None
        problem = world.broadcast(_download(source, options.data_dir) if missing else None)
        if problem is not None:
            raise DataError(problem)
    directory = source.find(options.data_dir)
    if directory is None:
        raise DataError(_missing(source, options.data_dir))
    shape = replace(source.shape, side=side or source.shape.side)
    read = _open_cifar10 if source.kind is datasets.CIFAR10 else _open_fashion_mnist
    try:
        train, test = (read(source, directory, shape, train=train) for train in (True, False))
    except _UNREADABLE as error:
        raise DataError(
            f"{source.title} in {directory} is damaged or incomplete ({_reason(error)}): delete it and start with "
            "--download"
        ) from error
    return Data(_first(train, options.train_images), test, shape, f"{source.title} from {directory}")


def _first(dataset: Dataset[Any], count: int | None) -> Dataset[Any]:
    """Take the first ``count`` samples; all of them where it is None or more than there are."""
    if count is None or count >= length_of(dataset):
        return dataset
    if isinstance(dataset, Images):
        return Images(*(each[:count] for each in dataset.tensors))
    return Subset(dataset, range(count))


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
    length = length_of(dataset)
    if length < ranks:
        raise DataError(f"the test set has {length} samples, and each of {ranks} ranks needs one: start fewer ranks")
    own, batches = torch.tensor(shard_range(length, rank, ranks)), math.ceil(length / ranks / batch)
    sampler = [part.tolist() for part in own.tensor_split(batches)]
    return DataLoader(dataset, batch_sampler=sampler, num_workers=workers, generator=generator)


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
            f"{source.title} could not be downloaded to {directory.resolve()} ({_reason(error)}): {_install(source)}"
            f"copy the files to {directory.resolve() / source.directory} yourself, or delete damaged ones there and "
            "try again"
        )
    return None


def _install(source: _Source) -> str:
    return f"run `apt-get install {source.package}`, " if source.package else ""


def _missing(source: _Source, data_dir: Path) -> str:
    return (
        f"{source.title} is not in {data_dir.resolve() / source.directory}: {_install(source)}name the directory that "
        "holds it with --data-dir, or let rank 0 download it with --download"
    )


def _open_fashion_mnist(source: _Source, directory: Path, shape: Shape, *, train: bool) -> Images:
    """Read the original files, packed or not; torchvision would convert image by image, in every epoch."""
    prefix = "train" if train else "t10k"
    images, labels = (_read_idx(directory, f"{prefix}-{name}-ubyte") for name in ("images-idx3", "labels-idx1"))
    _compare_lengths(images, labels)
    classes = torch.bincount(labels.flatten(), minlength=shape.classes)
    if images.shape[1:] != (shape.side, shape.side) or len(classes) > shape.classes:
        raise ValueError(f"its images are {list(images.shape[1:])} with {len(classes)} classes, so it is another set")
    if len(images) == shape.classes * _PER_CLASS and bool((classes != _PER_CLASS).any()):
        raise ValueError("its classes differ in size, so it is another set, such as MNIST")
    x = images[:, None].float().div_(255).sub_(source.mean[0]).div_(source.deviation[0])
    return Images(x, labels.long())


def _read_idx(directory: Path, name: str) -> Tensor:
    """Read unsigned bytes in IDX format: a header with the sizes, big-endian, then the values."""
    path = directory / name
    content = path.read_bytes() if path.exists() else gzip.decompress((directory / f"{name}.gz").read_bytes())
    if content[:3] != _IDX_BYTES:
        raise ValueError(f"{name} is no IDX file of bytes")
    start = 4 + 4 * content[3]
    sizes = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != math.prod(sizes):
        raise ValueError(f"{name} has {len(content) - start} values, and its header announces {math.prod(sizes)}")
    return torch.frombuffer(bytearray(content[start:]), dtype=torch.uint8).reshape(sizes)


def _open_cifar10(source: _Source, directory: Path, shape: Shape, *, train: bool) -> Dataset[Any]:
    augmentation = source.augmentation if train else ()
    resize = () if shape.side == source.shape.side else (transforms.Resize(shape.side),)
    normalize = transforms.Normalize(source.mean, source.deviation)
    transform = transforms.Compose([*augmentation, *resize, transforms.ToTensor(), normalize])
    dataset: Any = source.kind(root=directory.parent, train=train, transform=transform)
    _compare_lengths(dataset.data, dataset.targets)
    return cast("Dataset[Any]", dataset)


def _compare_lengths(images: Sized, labels: Sized) -> None:
    """Refuse files that do not belong together, by ValueError: torchvision does not compare them."""
    if len(images) != len(labels):
        raise ValueError(f"{len(images)} images and {len(labels)} labels")


def _reason(error: BaseException) -> str:
    """Text of ``error`` in one line."""
    return " ".join(str(error).split()) or f"torchvision could not read it: {type(error).__name__}"
