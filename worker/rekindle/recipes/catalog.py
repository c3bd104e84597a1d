"""The recipes and their command-line options as data, from which parsers, API, submit form and validation are built.

Standard library only: this is the one module of ``rekindle.recipes`` that the service imports, and import-linter
enforces both. It belongs here and not in ``rekindle.contract``, so that adding a recipe changes only this package.
"""

import argparse
import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from rekindle.contract.field_texts import Described

T = TypeVar("T")


def _value(convert: Callable[[str], T], rule: str, accepts: Callable[[T], bool]) -> Callable[[str], T]:
    """Make a converter for argparse whose error states the rule and the value."""

    def parse(text: str) -> T:
        with suppress(ValueError):
            if accepts(value := convert(text)):
                return value
        raise argparse.ArgumentTypeError(f"must be {rule}, not {text}")

    return parse


_COUNT = _value(int, "an integer of at least 1", lambda value: 1 <= value < 2**63)
_COUNT_OR_ZERO = _value(int, "an integer from 0 to 2^63 - 1", lambda value: 0 <= value < 2**63)
_POSITIVE = _value(float, "a number above 0", lambda value: 0 < value < math.inf)
_SECONDS = _value(float, "a number of seconds, at least 0", lambda value: 0 <= value < math.inf)
_MILESTONES: Callable[[str], tuple[int, ...]] = _value(
    lambda text: tuple(int(part) for part in text.split(",")),
    "epochs in rising order, such as 10,15,18",
    lambda value: [0, *value] == sorted({0, *value}),
)


def _option(
    default: Any,
    description: str,
    parse: Callable[[str], Any] = str,
    metavar: str | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    metadata = {"help": description, "parse": parse, "metavar": metavar, "choices": choices}
    return field(default=default, metadata=metadata)


def _choice(description: str, *choices: str) -> Any:
    return _option(choices[0], description, choices=choices)


@dataclass(frozen=True, slots=True)
class Options:
    """The value of every option; an option that a recipe does not offer keeps its default.

    ``batch_size`` is ``--batch-size``; a bool that is True by default is switched off by ``--no-…``.
    """

    epochs: int = _option(20, "passes over the training data", _COUNT)
    batch_size: int | None = _option(None, "samples per step, of all ranks together", _COUNT, "N")
    batch_size_per_rank: int | None = _option(None, "instead: samples per step of each rank", _COUNT, "N")
    lr: float = _option(0.1, "learning rate", _POSITIVE)
    lr_rule: str = _choice("how the learning rate scales with --batch-size-per-rank x ranks", "none", "linear", "sqrt")
    warmup_steps: int = _option(0, "steps over which the learning rate rises linearly", _COUNT_OR_ZERO, "N")
    lr_steps: tuple[int, ...] = _option(
        (), "finished epochs after which the learning rate drops to a tenth (default: cosine)", _MILESTONES, "EPOCH,…"
    )
    model: str = _choice("model", "small-resnet", "resnet34", "lenet", "convnet", "transformer")
    amp: str = _choice("automatic mixed precision", "no", "bf16", "fp16")
    accumulate: int = _option(1, "micro-batches per step; gradients are synchronized after the last", _COUNT, "N")
    micro_batches: int = _option(4, "micro-batches per batch that pass through the pipeline", _COUNT, "N")
    all_reduce: str = _choice("all-reduce algorithm", "ring", "naive", "bucketed")
    sync_batchnorm: bool = _option(False, "compute batch statistics over all ranks, not for each rank")
    find_unused_parameters: bool = _option(False, "for models that do not use every parameter in every step")
    unlinked: bool = _option(False, "try GPUs without peer-to-peer links, on which the loss may become NaN")
    deterministic_elastic: int | None = _option(
        None, "bit-identical weights on 1 to SHARDS ranks; slower", _COUNT, "SHARDS"
    )
    data: str = _choice("data set; digits needs no download", "digits", "fashion-mnist", "cifar10")
    data_dir: Path = _option(Path("data"), "directory of the other data sets", Path, "DIRECTORY")  # noqa: RUF009  # a field
    download: bool = _option(False, "let rank 0 download missing data")
    train_images: int | None = _option(None, "only this many training images (default: all)", _COUNT, "N")
    shuffle: bool = _option(True, "use the same order of samples in every epoch")
    workers: int = _option(0, "data loading processes per rank", _COUNT_OR_ZERO, "N")
    evaluate: str = _choice(
        "exact: each test sample once; padded: samples repeated until all ranks have equally many, as "
        "DistributedSampler does; compare: exact, and log the other counts as well",
        *("exact", "padded", "compare"),
    )
    seed: int = _option(0, "random seed", _COUNT_OR_ZERO, "N")
    throttle: float = _option(0.0, "pause after each step, to watch a fast training", _SECONDS, "SECONDS")


@dataclass(frozen=True, slots=True)
class RecipeOption(Described):
    """One option of a recipe's command line."""

    name: str
    """Name without the dashes."""
    help: str
    """What it does."""
    metavar: str | None
    """Placeholder for its value in a help text; null for a flag."""
    choices: tuple[str, ...]
    """Allowed values; empty where any value is allowed."""
    is_flag: bool
    """Whether it takes no value."""
    default: str | None
    """Default value; null for a flag, and where the recipe decides."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A module of ``rekindle.recipes`` that a job can run.

    ``offered`` names fields of ``Options``. ``choices`` restricts some of them, the first choice being the default;
    ``defaults`` replaces other defaults.
    """

    name: str
    title: str
    offered: tuple[str, ...]
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    single_process: bool = False  # one process, whatever the number of devices

    @property
    def options(self) -> list[RecipeOption]:
        """Everything that the command line accepts, in the order of ``Options``."""
        return [self._describe(option) for option in self._fields()]

    def parse(self, arguments: Sequence[str] | None = None) -> Options:
        """Read ``arguments`` (None: those of this process).

        Ends the process where an option is unknown or has a wrong value, naming the option and the closest match.
        """
        parser = _Parser(description=self.title, allow_abbrev=False, argument_default=argparse.SUPPRESS)
        for option in self._fields():
            _add_argument(parser, option, self._describe(option))
        defaults = {name: choices[0] for name, choices in self.choices.items()} | dict(self.defaults)
        options = Options(**{**defaults, **vars(parser.parse_args(arguments))})
        _validate_combination(parser, options)
        return options

    def _fields(self) -> Iterator[Field[Any]]:
        return (option for option in fields(Options) if option.name in self.offered)

    def _describe(self, option: Field[Any]) -> RecipeOption:
        name, choices = option.name.replace("_", "-"), self.choices.get(option.name)
        default = choices[0] if choices else self.defaults.get(option.name, option.default)
        is_flag = isinstance(default, bool)
        return RecipeOption(
            name=f"no-{name}" if default is True else name,
            help=option.metadata["help"],
            metavar=option.metadata["metavar"],
            choices=choices or option.metadata["choices"],
            is_flag=is_flag,
            default=None if is_flag or default in (None, ()) else str(default),
        )


def _add_argument(parser: argparse.ArgumentParser, option: Field[Any], shown: RecipeOption) -> None:
    default = "" if shown.default is None else f" (default: {shown.default})"
    kind: dict[str, Any] = {"action": "store_false" if option.default else "store_true"}
    if not shown.is_flag:
        kind = {"type": option.metadata["parse"], "choices": shown.choices or None, "metavar": shown.metavar}
    parser.add_argument(f"--{shown.name}", dest=option.name, help=f"{shown.help}{default}", **kind)


def _validate_combination(parser: argparse.ArgumentParser, options: Options) -> None:
    if options.batch_size is not None and options.batch_size_per_rank is not None:
        parser.error("--batch-size and --batch-size-per-rank exclude each other: give only one of them")
    if options.deterministic_elastic is not None and (
        options.sync_batchnorm or options.batch_size_per_rank is not None
    ):
        parser.error(
            "--deterministic-elastic makes the training independent of the number of ranks, and --sync-batchnorm and "
            "--batch-size-per-rank make it depend on them: omit these"
        )
    if options.lr_rule != "none" and options.batch_size_per_rank is None:
        parser.error(
            f"--lr-rule {options.lr_rule} needs --batch-size-per-rank: with --batch-size neither the global batch nor "
            "the learning rate depends on the number of ranks"
        )


class _Parser(argparse.ArgumentParser):
    """Suggests the closest match for an unknown option."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, unknown = self.parse_known_args(args, namespace)
        if unknown:
            names = [option for action in self._actions for option in action.option_strings]
            near = difflib.get_close_matches(unknown[0].partition("=")[0], names, n=1)
            hint = f"did you mean {near[0]}?" if near else "--help lists the options of this recipe"
            self.error(f"unknown option {unknown[0]}; {hint}")
        return known


_BASIC = ("epochs", "batch_size", "lr", "seed", "throttle")
_TRAINING = (*_BASIC, "data", "data_dir", "download", "train_images", "workers", "shuffle", "warmup_steps", "lr_steps")
_DATA_PARALLEL = (*_TRAINING, "batch_size_per_rank", "lr_rule", "evaluate")
_MODEL = ("model", "accumulate")

_RECIPES = (
    Recipe(
        "ddp",
        "Train on several ranks with DistributedDataParallel",
        (*_DATA_PARALLEL, *_MODEL, "amp", "sync_batchnorm", "find_unused_parameters", "deterministic_elastic"),
    ),
    Recipe(
        "dp",
        "Train with DataParallel: one process for all its devices",
        (*_TRAINING, *_MODEL, "unlinked"),
        single_process=True,
    ),
    Recipe(
        "fsdp",
        "Train a model too large for one device with fully sharded data parallelism (FSDP2)",
        (*_DATA_PARALLEL, *_MODEL, "amp"),
        choices={"amp": ("no", "bf16")},
    ),
    Recipe(
        "pipeline",
        "Train with pipeline parallelism: each rank has some of the layers",
        (*_TRAINING, "model", "micro_batches"),
        choices={"model": ("transformer", "small-resnet", "resnet34")},
    ),
    Recipe(
        "rl",
        "Learn to balance a pole by reinforcement learning: each rank plays its own episodes",
        (*_BASIC, "batch_size_per_rank"),
        defaults={"lr": 0.01},
    ),
    Recipe(
        "scratch",
        "Train LeNet with plain tensors, a hand-written all-reduce and a hand-written SGD",
        (*_DATA_PARALLEL, "all_reduce"),
        defaults={"model": "lenet"},
    ),
    Recipe(
        "single",
        "Train on one device: the reference for the other recipes",
        (*_TRAINING, *_MODEL, "amp"),
        single_process=True,
    ),
    Recipe(
        "tensor",
        "Train with tensor parallelism: each rank computes some outputs of each layer",
        (*_TRAINING, *_MODEL),
        choices={"model": ("transformer", "convnet")},
    ),
)
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _RECIPES}
