"""Recipe: train with DataParallel, one process for all its devices; for comparison with recipe ``ddp``.

    python -m rekindle.recipes.dp --epochs 20
    rekindle submit --recipe dp --devices-per-rank 2

In every step one process copies the model to all GPUs, one thread per GPU computes a chunk of the batch, and the
gradients are summed on the first GPU. torch's DataParallel does that for GPUs only; CPU slots stand in for GPUs here by
a thread for each, in the same way.
"""

import copy
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from rekindle.contract.environment import RankEnv
from rekindle.recipes import data_sets, models
from rekindle.recipes.loop import fit, print_line
from rekindle.recipes.training_context import TrainingContext, sgd, start_recipe
from rekindle.training.process_group import World
from rekindle.training.strategy import NoStrategy


class DataParallelStrategy(NoStrategy):
    """The model on the first device, copied to the others for the duration of a step."""

    def __init__(self, *, unlinked: bool) -> None:
        """``unlinked`` allows GPUs that cannot copy to each other directly."""
        self._unlinked = unlinked

    def wrap(self, model: nn.Module, world: World) -> nn.Module:
        if world.device.type == "cpu":
            return CPUDataParallel(model, devices(world))
        count = devices(world)
        if not self._unlinked:
            validate_peer_access(count, torch.cuda.can_device_access_peer)
        return nn.DataParallel(model, device_ids=list(range(count)))


def devices(world: World) -> int:
    """GPUs that this process sees, or CPU slots of the job."""
    return RankEnv.read(os.environ).devices_per_rank if world.device.type == "cpu" else torch.cuda.device_count()


class CPUDataParallel(nn.DataParallel[nn.Module]):
    """DataParallel whose devices are threads; only the first one's buffers are kept, as by torch's."""

    _replicas: list[nn.Module]

    def __init__(self, module: nn.Module, threads: int) -> None:
        super().__init__(module)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="device")
        structure = [copy.deepcopy(module).to("meta") for _ in range(threads - 1)]  # a call fills in the values
        self.__dict__["_replicas"] = [module, *structure]  # no part of the model's own state

    def forward(self, batch: Tensor) -> Tensor:
        chunks = batch.chunk(len(self._replicas))
        names, parameters = zip(*self.module.named_parameters(), strict=True)
        copies = zip(*(each.expand(len(chunks), *each.shape).unbind() for each in parameters), strict=True)
        buffers = dict(self.module.named_buffers())
        grad, calls = torch.is_grad_enabled(), []
        for index, (chunk, values) in enumerate(zip(chunks, copies, strict=True)):
            own = buffers if index == 0 else {name: buffer.clone() for name, buffer in buffers.items()}
            state = {**dict(zip(names, values, strict=True)), **own}
            replica = self._replicas[index].train(self.module.training)
            calls.append(self._pool.submit(_compute, replica, state, chunk, grad))
        return torch.cat([call.result() for call in calls])


def _compute(replica: nn.Module, state: dict[str, Any], chunk: Tensor, grad: bool) -> Tensor:
    with torch.set_grad_enabled(grad):  # a setting of each thread
        result: Tensor = functional_call(replica, state, (chunk,))
        return result


def validate_peer_access(count: int, can_access: Callable[[int, int], bool]) -> None:
    """Refuse, by RuntimeError, GPUs that cannot copy to each other directly: DataParallel has produced NaN there."""
    missing = [pair for pair in permutations(range(count), 2) if not can_access(*pair)]
    if missing:
        pairs = ", ".join(f"{one} to {other}" for one, other in missing)
        raise RuntimeError(
            f"DataParallel needs peer-to-peer links between all {count} GPUs, and there is none from {pairs} (see "
            "`nvidia-smi topo -p2p r`): use recipe ddp, give the process one GPU, or try it by --unlinked"
        )


def main() -> None:
    with start_recipe("dp") as (options, world):
        images = data_sets.load(options, world)
        model = models.build(options.model, images.shape)
        context = TrainingContext(options, images, sgd(model, options), world.device, data_parallel_size=1)
        with context.run(model, DataParallelStrategy(unlinked=options.unlinked)) as run:
            print_line(run, f"{devices(world)} devices in one process")
            fit(run, context)


if __name__ == "__main__":
    main()
