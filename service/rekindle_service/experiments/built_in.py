"""The experiments that come with rekindle: each the body of a ``POST /experiments`` that anybody could send.

``small`` runs on two CPU cores within minutes, on data that is always there. ``full`` is for GPUs and CIFAR-10, whose
folder the user names (``-- --data-dir FOLDER``).
"""

from typing import Any

SIZES = ("small", "full")

Body = dict[str, Any]

_FULL = ["--data", "cifar10", "--model", "resnet34", "--epochs", "30", "--lr-steps", "15,23,28"]
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # for a job of one rank, too, which would otherwise take all cores
_FAST = ["--amp", "bf16"]
_LENET = ["--model", "lenet"]  # which has no batch normalisation: any number of ranks trains the same

_ACCURACY = {"metric": "test_accuracy", "title": "accuracy"}
_SECONDS = {"metric": "epoch_seconds", "take": "lowest", "title": "seconds per epoch"}
_EVERY_PORTION = {"--batch-size-per-rank": 16, "--accumulate": 1}
_LOAD = {"metric": "load", "take": "highest", "title": "load"}
_SPEED = {"metric": "samples_per_second", "take": "highest", "title": "samples per second"}


def _training(small: list[str], full: list[str], *, base: Body, **fields: Any) -> dict[str, Body]:
    """A training in both sizes, with arguments of its own in each."""
    return {
        "small": {**fields, "base": {**base, "env": _ONE_THREAD, "args": small}},
        "full": {**fields, "base": {**base, "args": [*_FULL, *full]}},
    }


_DEFINITIONS: dict[str, dict[str, Body]] = {
    "shuffle": _training(
        [*_LENET, "--epochs", "8", "--lr", "0.05"],
        _FAST,
        base={"recipe": "ddp"},
        title="The same order of samples in every epoch, against a new one",
        matrix={"ranks": [2], "--no-shuffle": [True, False]},
        repeats=3,
        seed_option="--seed",
        measure=[{"metric": "accuracy", "title": "accuracy in training"}, _ACCURACY],
    ),
    "uneven": _training(
        [*_LENET, "--epochs", "4", "--lr", "0.05", "--evaluate", "compare"],
        [*_FAST, "--evaluate", "compare"],
        base={"recipe": "ddp"},
        title="359 test samples on 1 to 4 ranks: counted by one rank, shared out exactly, and padded",
        matrix={"ranks": [1, 2, 3, 4]},
        measure=[
            {"metric": "counted_accuracy", "title": "counted by hand"},
            {"metric": "test_accuracy", "title": "exact"},
            {"metric": "padded_accuracy", "title": "padded"},
            {"metric": "padded_samples", "title": "samples with padding"},
        ],
    ),
    "scaling": _training(
        [*_LENET, "--epochs", "6", "--lr", "0.02"],
        _FAST,
        base={"recipe": "ddp"},
        title="A batch that grows with the ranks, with and without a learning rate that follows",
        matrix=[
            {"ranks": [1], "--batch-size-per-rank": [32, 64]},
            {"ranks": [2, 4], "--batch-size-per-rank": [32, 64], "--lr-rule": ["none", "linear"]},
        ],
        measure=[
            {"metric": "lr", "take": "highest", "title": "learning rate"},
            _SECONDS,
            {**_SPEED, "relative_to": {"ranks": 1}, "title": "speed-up"},
            _ACCURACY,
            _LOAD,
        ],
        sequential=True,
    ),
    "dp-vs-ddp": _training(
        [*_LENET, "--epochs", "6", "--lr", "0.05"],
        [],
        base={},
        title="One process with DataParallel, against one process for each device",
        matrix=[{"recipe": ["dp"], "ranks": [1]}, {"recipe": ["ddp"], "ranks": [1, 2]}],
        measure=[
            _SECONDS,
            {**_SPEED, "relative_to": {"recipe": "dp", "ranks": 1}, "title": "speed-up"},
            _ACCURACY,
            _LOAD,
        ],
        sequential=True,
    ),
    "batchnorm": _training(
        ["--epochs", "2", "--batch-size", "16", "--lr", "0.02"],
        _FAST,
        base={"recipe": "ddp"},
        title="Batch statistics of each rank's own samples, against those of all ranks",
        matrix={"ranks": [2, 4], "--sync-batchnorm": [False, True]},
        measure=[_ACCURACY, _SECONDS, _LOAD],
        sequential=True,
    ),
    "sync-every": _training(
        [*_LENET, "--epochs", "6", "--lr", "0.02"],
        _FAST,
        base={"recipe": "ddp"},
        title="Gradients shared after every portion of 16 samples a rank, or after several",
        matrix=[
            {"ranks": [2], "--batch-size-per-rank": [16 * portions], "--accumulate": [portions]}
            for portions in (1, 2, 4, 8)
        ],
        measure=[_SECONDS, {**_SPEED, "relative_to": _EVERY_PORTION, "title": "speed-up"}, _ACCURACY, _LOAD],
        sequential=True,
    ),
}


def _all_reduce(kilobytes: list[int], ranks: list[int]) -> Body:
    columns = [{"metric": f"ms_of_{size}_kB", "take": "lowest", "title": f"ms for {size} kB"} for size in kilobytes]
    largest = {"metric": f"ms_of_{kilobytes[-1]}_kB", "take": "lowest", "title": f"{kilobytes[-1]} kB against naive"}
    return {
        "title": "Adding up gradients over all ranks: everything to rank 0 and back, a ring, and torch's own",
        "base": {
            "module": "rekindle.recipes.all_reduce_speed",
            "args": ["--kilobytes", ",".join(map(str, kilobytes))],
        },
        "matrix": {"ranks": ranks, "--all-reduce": ["naive", "ring", "bucketed"]},
        "measure": [*columns, {**largest, "relative_to": {"--all-reduce": "naive"}}, _LOAD],
        "one_at_a_time": True,
    }


_DEFINITIONS["allreduce"] = {
    "small": _all_reduce([64, 1024, 16384], [2, 4]),
    "full": _all_reduce([64, 1024, 16384, 262144], [2, 4, 8]),
}


def names() -> list[str]:
    return list(_DEFINITIONS)


def definition(name: str, size: str) -> Body:
    """Raises KeyError for a name or a size that there is not."""
    return _DEFINITIONS[name][size]
