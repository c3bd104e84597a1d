"""The options of the recipes. Each recipe offers those that do something in it, and no others."""

import argparse
import difflib
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose; an option that a recipe does not offer has its default."""

    data: str = "digits"
    data_dir: Path = Path("data")
    download: bool = False
    model: str = "small-resnet"
    epochs: int = 20
    batch_size: int | None = None
    batch_size_per_rank: int | None = None
    lr: float = 0.1
    lr_rule: str = "none"
    warmup_steps: int = 0
    lr_steps: tuple[int, ...] = ()
    accumulate: int = 1
    amp: str = "no"
    sync_batchnorm: bool = False
    find_unused_parameters: bool = False
    deterministic_elastic: int | None = None
    shuffle: bool = True
    evaluate: str = "exact"
    workers: int = 0
    seed: int = 0
    throttle: float = 0.0
    micro_batches: int = 4
    all_reduce: str = "ring"


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        with suppress(ValueError):
            if least <= int(text) < 2**63:
                return int(text)
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} on, not {text}")

    return read


def _positive(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"must be a number above 0, not {text}")


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"must be seconds, 0 or more, not {text}")


def _epochs(text: str) -> tuple[int, ...]:
    with suppress(ValueError):
        epochs = tuple(int(part) for part in text.split(","))
        if list(epochs) == sorted(set(epochs)) and epochs[0] >= 1:
            return epochs
    raise argparse.ArgumentTypeError(f"must be epochs in rising order, such as 10,15,18, not {text}")


_count = _whole(1)
_FLAGS: dict[str, dict[str, Any]] = {
    "data": {"choices": ["digits", "fashion-mnist", "cifar10"], "help": "digits need no download"},
    "data-dir": {"type": Path, "metavar": "FOLDER", "help": "where torchvision keeps the other data sets"},
    "download": {"action": "store_true", "help": "let rank 0 download what is missing"},
    "epochs": {"type": _count},
    "batch-size": {"type": _count, "metavar": "N", "help": "samples in a step of all ranks together"},
    "batch-size-per-rank": {"type": _count, "metavar": "N", "help": "instead: samples in a step of each rank"},
    "lr": {"type": _positive, "help": "learning rate"},
    "lr-rule": {
        "choices": ["none", "linear", "sqrt"],
        "help": "how the learning rate follows the number of ranks where the batch grows with them",
    },
    "warmup-steps": {
        "type": _whole(0),
        "metavar": "N",
        "help": "steps in which the learning rate rises to its full height",
    },
    "lr-steps": {
        "type": _epochs,
        "metavar": "EPOCH,…",
        "help": "finished epochs after which the learning rate falls to a tenth (default: half a cosine)",
    },
    "accumulate": {"type": _count, "metavar": "N", "help": "portions of a step; gradients are shared after the last"},
    "sync-batchnorm": {"action": "store_true", "help": "batch statistics of all ranks instead of each rank's own"},
    "find-unused-parameters": {"action": "store_true", "help": "for models that leave parameters out of some steps"},
    "deterministic-elastic": {
        "type": _count,
        "metavar": "SHARDS",
        "help": "the same weights to the last bit on 1 to SHARDS ranks, at some cost",
    },
    "no-shuffle": {"dest": "shuffle", "action": "store_false", "help": "the same order of samples in every epoch"},
    "evaluate": {
        "choices": ["exact", "padded", "compare"],
        "help": "each test sample once, or repeated until all ranks have equally many, as DistributedSampler does; "
        "compare: once, and the other ways beside it",
    },
    "workers": {"type": _whole(0), "metavar": "N", "help": "processes that load data, for each rank"},
    "seed": {"type": _whole(0), "metavar": "N"},
    "throttle": {"type": _seconds, "metavar": "SECONDS", "help": "pause after each step, to watch"},
    "micro-batches": {"type": _count, "metavar": "N", "help": "portions of a batch that follow each other"},
    "all-reduce": {"choices": ["naive", "ring", "bucketed"], "help": "how the ranks add up their gradients"},
}

COMMON = ("epochs", "batch-size", "lr", "seed", "throttle")
DATA = ("data", "data-dir", "download", "workers", "no-shuffle")
SCHEDULE = ("warmup-steps", "lr-steps")
SHARED_BATCH = ("batch-size-per-rank", "lr-rule", "evaluate")
"""Of recipes whose ranks divide a batch."""


def read_options(
    docstring: str | None,
    *names: str,
    models: tuple[str, ...] = (),
    precisions: tuple[str, ...] = (),
    arguments: list[str] | None = None,
    **defaults: Any,
) -> Options:
    """Read ``arguments`` (by default the command line). ``names`` are the offered options.

    ``models`` and ``precisions`` are offered too, the first one as default. Ends the process, with the option's name
    and the nearest right one, where an option is unknown or its value is not.
    """
    parser = _Parser(
        description=(docstring or "").partition("\n")[0],
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,  # so that what is not given keeps the default of Options
    )
    for name in (*COMMON, *names):
        parser.add_argument(f"--{name}", **_FLAGS[name])
    if models:
        parser.add_argument("--model", choices=models)
        defaults.setdefault("model", models[0])
    if precisions:
        parser.add_argument("--amp", choices=precisions, help="mixed precision")
    options = Options(**{**defaults, **vars(parser.parse_args(arguments))})
    _refuse_contradictions(parser, options)
    return options


def _refuse_contradictions(parser: argparse.ArgumentParser, options: Options) -> None:
    if options.batch_size is not None and options.batch_size_per_rank is not None:
        parser.error("--batch-size and --batch-size-per-rank: give only one of them")
    if options.deterministic_elastic is not None and (
        options.sync_batchnorm or options.batch_size_per_rank is not None
    ):
        parser.error(
            "--deterministic-elastic takes the number of ranks out of the training, and --sync-batchnorm and "
            "--batch-size-per-rank bring it in: leave them out"
        )
    if options.lr_rule != "none" and options.batch_size_per_rank is None:
        parser.error(
            f"--lr-rule {options.lr_rule} needs --batch-size-per-rank: with --batch-size the batch stays the same "
            "however many ranks there are, and so does the learning rate"
        )


class _Parser(argparse.ArgumentParser):
    """Knows what the user may have meant."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown[0])
        return known

    def _refuse(self, argument: str) -> NoReturn:
        known = [option for action in self._actions for option in action.option_strings]
        near = difflib.get_close_matches(argument.partition("=")[0], known, n=1)
        hint = f"did you mean {near[0]}?" if near else "--help lists those that this recipe has"
        self.error(f"unknown option {argument}; {hint}")
