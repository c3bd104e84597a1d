"""The experiments that come with rekindle, each the body of a ``POST /experiments`` that anybody could send.

``small`` runs on two CPU cores within minutes, on digits or on Debian's Fashion-MNIST. ``full`` is for GPUs and
CIFAR-10, whose directory the user names (``-- --data-dir DIRECTORY``).
"""

from typing import Any

SIZES = ("small", "full")

Body = dict[str, Any]

_FULL = "--data cifar10 --model resnet34 --epochs 30 --lr-steps 15,23,28"
_FASHION = "--data fashion-mnist --model lenet"
_FAST = "--amp bf16"
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # also for a job of one rank, which would otherwise use all cores


def _measure(metric: str, title: str, take: str = "last", **fields: Any) -> Body:
    return {"metric": metric, "title": title, "take": take, **fields}


def _speed_up(baseline: dict[str, Any]) -> Body:
    return _measure("samples_per_second", "speed-up", "max", relative_to=baseline)


_ACCURACY = _measure("test_accuracy", "accuracy")
_IN_TRAINING = _measure("accuracy", "accuracy in training")
_COUNTED = _measure("counted_accuracy", "counted by one rank")
_SECONDS = _measure("epoch_seconds", "seconds per epoch", "min")
_RATE = _measure("lr", "learning rate", "max")
_LOSS = _measure("epoch_loss", "loss")
_WEIGHTS = _measure("weights", "digest of the weights")
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


def _shown(part: str, **fields: Any) -> dict[str, Body]:
    """Two ranks that print what they do, the same in both sizes."""
    base = {"module": "rekindle.recipes.primitives", "args": [part]}
    body = {"base": base, "show_output": True, **fields}
    return dict.fromkeys(SIZES, body)


def _all_reduce(kilobytes: list[int], ranks: list[int]) -> Body:
    times = [_measure(f"ms_of_{size}_kB", f"ms for {size} kB", "min") for size in kilobytes]
    ratio = {**times[-1], "title": f"{kilobytes[-1]} kB relative to naive", "relative_to": {"--all-reduce": "naive"}}
    return {
        "title": "All-reduce: everything to rank 0 and back, a ring, and torch's own",
        "base": {"module": "rekindle.recipes.all_reduce_speed", "args": ["--kilobytes", ",".join(map(str, kilobytes))]},
        "matrix": {"ranks": ranks, "--all-reduce": ["naive", "ring", "bucketed"]},
        "measure": [*times, ratio, _LOAD],
        "conclude": {"--all-reduce": times[-1]["title"]},
        "sequential": True,
    }


def _lenet(epochs: int) -> Body:
    return {
        "title": "LeNet from scratch on Fashion-MNIST, on one device and on two, with each all-reduce",
        "base": {
            "recipe": "scratch",
            "env": _ONE_THREAD,
            "args": f"--data fashion-mnist --epochs {epochs} --batch-size 256 --lr 0.2".split(),
        },
        "matrix": [{"ranks": [1]}, {"ranks": [2], "--all-reduce": ["naive", "ring", "bucketed"]}],
        "measure": [_LOSS, _ACCURACY, _SECONDS, _WEIGHTS, _LOAD],
        "conclude": {"--all-reduce": _WEIGHTS["title"]},
        "sequential": True,
    }


def _links(args: str, **fields: Any) -> Body:
    """DataParallel and DDP on a pair of devices; ``fields`` are those of the matrix that both share."""
    rates: Body = {"--lr": [0.1, 0.05, 0.001], **fields}
    return {
        "title": "DataParallel and DDP on a pair of devices: is the loss finite?",
        "base": {"args": args.split()},
        "matrix": [
            {"recipe": ["dp"], "devices_per_rank": [2], **rates, "--unlinked": [True]},
            {"recipe": ["ddp"], "ranks": [2], **rates},
        ],
        "measure": [_LOSS, _ACCURACY, _SECONDS],
        "conclude": {"recipe": "loss"},
        "reference": [
            "Tutorial: on two GPUs without a link, DataParallel gave NaN from the first epoch on at each of these "
            "rates, and DDP never did. A job whose loss is not finite fails here with the class nan."
        ],
    }


# LeNet has no batch normalization, so any number of ranks trains the same weights
_DEFINITIONS: dict[str, dict[str, Body]] = {
    "dp-links": {
        "small": _links("--model lenet --epochs 3"),
        "full": _links(f"{_FULL} --epochs 3", device=["cuda"], links=["required", "avoided"]),
    },
    "ddp": _training(
        f"{_FASHION} --epochs 1 --lr 0.05 --batch-size 256",
        _FAST,
        title="DistributedDataParallel on two and on four ranks, and what each rank prints",
        matrix={"ranks": [2, 4]},
        measure=[_LOSS, _IN_TRAINING, _ACCURACY, _SECONDS],
        conclude={"ranks": "accuracy"},
        reference=[
            "Tutorial: each rank prints its own loss and accuracy; at the end all ranks have the same accuracy."
        ],
        show_output=True,
    ),
    "shuffle": _training(
        f"{_FASHION} --train-images 6000 --epochs 5 --lr 0.05",
        _FAST,
        title="The same order of samples in every epoch, compared with a new one",
        matrix={"ranks": [2], "--no-shuffle": [True, False]},
        repeats=5,
        seed_option="--seed",
        measure=[_ACCURACY, _IN_TRAINING],
        conclude={"--no-shuffle": "accuracy"},
        reference=["Tutorial (ResNet-34, CIFAR-10, 5 repeats): 73.9 to 76.1 % with set_epoch, 72.3 to 75.0 % without."],
    ),
    "cross-gpu-shuffle": _shown(
        "samples",
        title="Eight integers on two ranks in two epochs: does a rank get samples that the other one had?",
        matrix={"ranks": [2], "--no-set-epoch": [False, True]},
        measure=[_measure("new_samples", "number of samples that changed rank")],
        conclude={"--no-set-epoch": "number of samples that changed rank"},
        reference=[
            "Tutorial: with set_epoch each rank gets samples that the other one had; without, both repeat theirs."
        ],
    ),
    "metrics": _training(
        f"{_FASHION} --train-images 6000 --epochs 1 --lr 0.05 --evaluate compare",
        f"{_FAST} --evaluate compare",
        title="torchmetrics, compared with what each rank counts and with what one rank counts alone",
        matrix={"ranks": [2, 3, 4]},
        measure=[
            *(_measure(f"exact_correct_{rank}", f"correct on rank {rank}") for rank in range(4)),
            _measure("test_accuracy", "torchmetrics"),
            _COUNTED,
        ],
        conclude={"torchmetrics": _COUNTED["title"]},
        reference=[
            "Tutorial: 3491 / 5000 and 3521 / 5000 on two ranks, together 70.12 %, as torchmetrics computes it."
        ],
    ),
    "uneven": _training(
        f"{_FASHION} --train-images 6000 --epochs 1 --lr 0.05 --evaluate compare",
        f"{_FAST} --evaluate compare",
        title="A test set on 1 to 4 ranks: counted by one rank, divided exactly, and padded",
        matrix={"ranks": [1, 2, 3, 4]},
        measure=[
            _COUNTED,
            _measure("test_accuracy", "exact"),
            _measure("padded_accuracy", "padded"),
            _measure("exact_samples_0", "samples of rank 0"),
            _measure("padded_samples_0", "padded samples of rank 0"),
        ],
        conclude={"exact": _COUNTED["title"], "padded": _COUNTED["title"]},
        reference=[
            "Tutorial: 10,000 test images on three ranks are 3,334 each with DistributedSampler, which repeats two, "
            "and the accuracy is off in the third digit; 3,333 + 3,333 + 3,334 without padding is exact."
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
        measure=[_RATE, _SECONDS, _speed_up({"ranks": 1}), _ACCURACY],
        conclude={"--lr-rule": "accuracy"},
        timed=True,
    ),
    "dp-vs-ddp": _training(
        "--model lenet --epochs 6 --lr 0.05",
        "",
        base={},
        title="One process with DataParallel, compared with one process per device",
        matrix=[{"recipe": ["dp"], "devices_per_rank": [1, 2]}, {"recipe": ["ddp"], "ranks": [1, 2]}],
        measure=[_SECONDS, _speed_up({"recipe": "dp", "devices_per_rank": 1}), _ACCURACY],
        conclude={"recipe": "seconds per epoch"},
        timed=True,
    ),
    "batchnorm": _training(
        "--epochs 2 --batch-size 16 --lr 0.02",
        _FAST,
        title="Batch statistics of each rank's own samples, compared with those of all ranks",
        matrix={"ranks": [2, 4], "--sync-batchnorm": [False, True]},
        measure=[_ACCURACY, _SECONDS],
        conclude={"--sync-batchnorm": "accuracy"},
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
        conclude={"--accumulate": "accuracy"},
        timed=True,
    ),
    "allreduce": {
        "small": _all_reduce([64, 1024, 16384], [2, 4]),
        "full": _all_reduce([64, 1024, 16384, 262144], [2, 4, 8]),
    },
    "lenet": {"small": _lenet(epochs=1), "full": _lenet(epochs=20)},
    "primitives": _shown(
        "step",
        title="What get_params, allreduce and split_batch do to small tensors",
        matrix={"ranks": [2]},
        measure=[_measure("differing", "all-reduce algorithms with other bits")],
    ),
    "resnet34": _training(
        "--model resnet34 --train-images 512 --epochs 16 --batch-size-per-rank 128 --lr-steps 4,9,14",
        "--epochs 20 --batch-size-per-rank 128 --lr-steps 4,9,14",
        title="ResNet-34 with 128 samples per rank, and a learning rate that drops to a tenth at epochs 4, 9 and 14",
        matrix={"ranks": [1, 2]},
        measure=[_LOSS, _IN_TRAINING, _ACCURACY, _SECONDS, _speed_up({"ranks": 1})],
        conclude={"ranks": "accuracy"},
        reference=[
            "Tutorial (CIFAR-10): 391 steps per epoch on one GPU, 196 on two; rates 0.1, 0.01, 0.001 and 0.0001."
        ],
        timed=True,
    ),
}


def names() -> list[str]:
    return list(_DEFINITIONS)


def definition(name: str, size: str) -> Body:
    """Raises KeyError for an unknown name or size."""
    return _DEFINITIONS[name][size]
