"""A recipe in odd circumstances, for ``RecipeProcess.run_module``: arguments are an oddity, a recipe, its options."""

import hashlib
import os
import sys
from importlib import import_module
from pathlib import Path

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import get_worker_info
from torchvision import datasets

from rekindle.recipes import data_sets, loop, models
from rekindle.training.run import Run
from rekindle.training.strategy import DDPStrategy


def main() -> None:
    oddity, recipe, *rest = sys.argv[1:]
    ODDITIES[oddity]()
    sys.argv = [recipe, *rest]
    import_module(f"rekindle.recipes.{recipe}").main()


def as_it_is() -> None:
    """Nothing odd."""


def small_cifar10() -> None:
    """The checksums of CIFAR-10 are those of the files in ``data``."""
    md5 = {path.name: _md5(path.read_bytes()) for path in Path("data/cifar-10-batches-py").iterdir()}
    batches = [f"data_batch_{number}" for number in range(1, 6)]
    datasets.CIFAR10.train_list = [[name, md5[name]] for name in batches]
    datasets.CIFAR10.test_list = [["test_batch", md5["test_batch"]]]
    datasets.CIFAR10.meta = {**datasets.CIFAR10.meta, "md5": md5["batches.meta"]}


def own_mirror() -> None:
    """Fashion-MNIST comes from the address in the file ``mirror``, with the checksums of the files in ``served``."""
    os.environ["no_proxy"] = "127.0.0.1"
    data_sets.DEBIAN = Path("not installed")
    datasets.FashionMNIST.mirrors = [Path("mirror").read_text()]
    datasets.FashionMNIST.resources = [
        (name, _md5((Path("served") / name).read_bytes())) for name, _ in datasets.FashionMNIST.resources
    ]


def idle_layer() -> None:
    """The model has a layer that it leaves out."""
    build = models.build

    class Model(nn.Module):
        def __init__(self, *chosen: object) -> None:
            super().__init__()
            self.used, self.idle = build(*chosen), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    models.build = Model


def counted_messages() -> None:
    """At the end each rank says how many times it has shared gradients."""
    wrap, messages = DDPStrategy.wrap, []

    def count(state: object, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        messages.append(bucket.index())
        return allreduce_hook(None, bucket)

    def counting(method: DDPStrategy, *given: object) -> nn.Module:
        model = wrap(method, *given)
        assert isinstance(model, DistributedDataParallel)
        model.register_comm_hook(None, count)
        return model

    DDPStrategy.wrap = counting
    _at_end(lambda: f"{len(messages)} messages")


def seen_precision() -> None:
    """At the end each rank says in which precision the model has answered in training, and the scale of its loss."""
    seen, scales, classify = set(), set(), loop.cross_entropy

    def look(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        seen.add(str(logits.dtype))
        return classify(logits, labels)

    scale = torch.amp.GradScaler.scale

    def scaled(scaler: torch.amp.GradScaler, loss: torch.Tensor) -> torch.Tensor:
        scales.add(scaler.get_scale())
        return scale(scaler, loss)

    loop.cross_entropy, torch.amp.GradScaler.scale = look, scaled
    _at_end(lambda: f"precision {seen} scale {scales}")


def seen_loaders() -> None:
    """Every process that loads training samples leaves a file: ``loader-own`` is that of the rank itself."""
    load = data_sets.load

    class Noted(torch.utils.data.Dataset):
        def __init__(self, inner: torch.utils.data.Dataset) -> None:
            self._inner = inner

        def __len__(self) -> int:
            return len(self._inner)

        def __getitem__(self, index: int) -> object:
            worker = get_worker_info()
            Path(f"loader-{'own' if worker is None else worker.id}").touch()
            return self._inner[index]

    def noting(*given: object, **named: object) -> data_sets.Data:
        found = load(*given, **named)
        return data_sets.Data(Noted(found.train), found.test, found.shape, found.origin)

    data_sets.load = noting


ODDITIES = {
    function.__name__.replace("_", "-"): function
    for function in (as_it_is, small_cifar10, own_mirror, idle_layer, counted_messages, seen_precision, seen_loaders)
}


def _at_end(text: object) -> None:
    leave = Run.__exit__

    def saying(run: Run, *how: object) -> None:
        print(text(), flush=True)
        leave(run, *how)

    Run.__exit__ = saying


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
