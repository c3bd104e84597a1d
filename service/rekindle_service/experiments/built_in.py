"""The experiments that come with rekindle, each the body of a ``POST /experiments`` that anybody could send.

``small`` runs on two CPU cores within minutes, on data that needs no download. ``full`` is for GPUs and CIFAR-10, whose
directory the user names (``-- --data-dir DIRECTORY``).
"""

from typing import Any

SIZES = ("small", "full")

Body = dict[str, Any]

_FULL = "--data cifar10 --model resnet34 --epochs 30 --lr-steps 15,23,28"
_FAST = "--amp bf16"
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # also for a job of one rank, which would otherwise use all cores


def _measure(metric: str, title: str, take: str = "last", **fields: Any) -> Body:
    return {"metric": metric, "title": title, "take": take, **fields}


def _speed_up(baseline: dict[str, Any]) -> Body:
    return _measure("samples_per_second", "speed-up", "max", relative_to=baseline)


_ACCURACY = _measure("test_accuracy", "accuracy")
_SECONDS = _measure("epoch_seconds", "seconds per epoch", "min")
_LOAD = _measure("load", "load", "max")


def _training(small: str, full: str, *, timed: bool = False, **fields: Any) -> dict[str, Body]:
    """A training in both sizes, with their arguments. ``timed``: one job at a time, and the load is a column."""
    recipe = fields.pop("base", {"recipe": "ddp"})
    if timed:
        fields = {**fields, "measure": [*fields["measure"], _LOAD], "sequential": True}
    return {
        "small": {**fields, "base": {**recipe, "env": _ONE_THREAD, "args": small.split()}},
        "full": {**fields, "base": {**recipe, "args": f"{_FULL} {full}".split()}},
    }


def _all_reduce(kilobytes: list[int], ranks: list[int]) -> Body:
    times = [_measure(f"ms_of_{size}_kB", f"ms for {size} kB", "min") for size in kilobytes]
    ratio = {**times[-1], "title": f"{kilobytes[-1]} kB relative to naive", "relative_to": {"--all-reduce": "naive"}}
    return {
        "title": "All-reduce: everything to rank 0 and back, a ring, and torch's own",
        "base": {"module": "rekindle.recipes.all_reduce_speed", "args": ["--kilobytes", ",".join(map(str, kilobytes))]},
        "matrix": {"ranks": ranks, "--all-reduce": ["naive", "ring", "bucketed"]},
        "measure": [*times, ratio, _LOAD],
        "sequential": True,
    }


# LeNet has no batch normalization, so any number of ranks trains the same weights
_DEFINITIONS: dict[str, dict[str, Body]] = {
    "shuffle": _training(
        "--model lenet --epochs 8 --lr 0.05",
        _FAST,
        title="The same order of samples in every epoch, compared with a new one",
        matrix={"ranks": [2], "--no-shuffle": [True, False]},
        repeats=3,
        seed_option="--seed",
        measure=[_measure("accuracy", "accuracy in training"), _ACCURACY],
    ),
    "uneven": _training(
        "--model lenet --epochs 4 --lr 0.05 --evaluate compare",
        f"{_FAST} --evaluate compare",
        title="359 test samples on 1 to 4 ranks: counted by one rank, divided exactly, and padded",
        matrix={"ranks": [1, 2, 3, 4]},
        measure=[
            _measure("counted_accuracy", "counted by one rank"),
            _measure("test_accuracy", "exact"),
            _measure("padded_accuracy", "padded"),
            _measure("padded_samples", "samples with padding"),
        ],
    ),
    "scaling": _training(
        "--model lenet --epochs 6 --lr 0.02",
        _FAST,
        title="A batch that grows with the ranks, with and without scaling the learning rate",
        matrix=[
            {"ranks": [1], "--batch-size-per-rank": [32, 64]},
            {"ranks": [2, 4], "--batch-size-per-rank": [32, 64], "--lr-rule": ["none", "linear"]},
        ],
        measure=[_measure("lr", "learning rate", "max"), _SECONDS, _speed_up({"ranks": 1}), _ACCURACY],
        timed=True,
    ),
    "dp-vs-ddp": _training(
        "--model lenet --epochs 6 --lr 0.05",
        "",
        base={},
        title="One process with DataParallel, compared with one process per device",
        matrix=[{"recipe": ["dp"], "devices_per_rank": [1, 2]}, {"recipe": ["ddp"], "ranks": [1, 2]}],
        measure=[_SECONDS, _speed_up({"recipe": "dp", "devices_per_rank": 1}), _ACCURACY],
        timed=True,
    ),
    "batchnorm": _training(
        "--epochs 2 --batch-size 16 --lr 0.02",
        _FAST,
        title="Batch statistics of each rank's own samples, compared with those of all ranks",
        matrix={"ranks": [2, 4], "--sync-batchnorm": [False, True]},
        measure=[_ACCURACY, _SECONDS],
        timed=True,
    ),
    "sync-every": _training(
        "--model lenet --epochs 6 --lr 0.02",
        _FAST,
        title="Gradients synchronized after every micro-batch of 16 samples per rank, or after several",
        matrix=[
            {"ranks": [2], "--batch-size-per-rank": [16 * steps], "--accumulate": [steps]} for steps in (1, 2, 4, 8)
        ],
        measure=[_SECONDS, _speed_up({"--batch-size-per-rank": 16, "--accumulate": 1}), _ACCURACY],
        timed=True,
    ),
    "allreduce": {
        "small": _all_reduce([64, 1024, 16384], [2, 4]),
        "full": _all_reduce([64, 1024, 16384, 262144], [2, 4, 8]),
    },
}


def names() -> list[str]:
    return list(_DEFINITIONS)


def definition(name: str, size: str) -> Body:
    """Raises KeyError for an unknown name or size."""
    return _DEFINITIONS[name][size]
