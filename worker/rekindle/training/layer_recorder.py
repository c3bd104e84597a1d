"""What each layer computes in one step: for a replay that asks why its loss or its gradients are what they are."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from rekindle.contract.files import write_json
from rekindle.contract.run_dir.digest_records import LayerRecord, StepRecord, hexadecimal
from rekindle.training.sampler import ElasticSampler
from rekindle.training.tensor_digests import TensorDigests, local_part, tensors_in

_MAX_RECORDS = 4000  # as many as fit in a record
_log = logging.getLogger("rekindle")


@dataclass(slots=True)
class LayerRecorder:
    """Records ``step`` on one rank: the ids and the tensors of its batch, and what goes through each layer.

    ``path``: of the ``StepRecord``; the batch is next to it, for ``torch.load``. None of ``step`` or ``path``: nothing.
    """

    module: nn.Module
    step: int | None
    path: Path | None
    _records: list[LayerRecord] = field(default_factory=list)
    _hooks: list[RemovableHandle] = field(default_factory=list)
    _samples: list[int] | None = None  # of the batch, while the step is recorded

    def begin_step(self, step: int, sampler: ElasticSampler) -> None:
        """Begin ``step``, counted from 1, if it is the one."""
        if step == self.step and self.path is not None:
            self._samples = next(iter(sampler))
            for name, layer in self.module.named_modules():
                if not any(True for _ in layer.children()):
                    self._hooks.append(layer.register_forward_hook(self._forward_hook(name)))

    def note_batch(self, batch: Any) -> None:
        """Save the batch."""
        if self._samples is not None and self.path is not None:
            for index, tensor in enumerate(tensors_in(batch)):
                self._add("batch", str(index), tensor)
            try:
                torch.save(batch, self.path.with_name("batch.pt"))
            except Exception as error:  # noqa: BLE001  # whatever the script's own classes raise
                _log.warning("the batch of step %s is not saved: %s", self.step, error)

    def end_step(self) -> None:
        """Write the record, once the optimizer has stepped."""
        if self._samples is None or self.path is None:
            return
        for hook in self._hooks:
            hook.remove()
        for name, parameter in self.module.named_parameters():
            self._add("gradient", name, parameter.grad)
            self._add("parameter", name, parameter)
        write_json(self.path, StepRecord(self.step or 0, self._samples, self._records).to_json(), durable=False)
        self._samples, self._hooks = None, []

    def _forward_hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def record(_layer: nn.Module, _inputs: Any, outputs: Any) -> None:
            for output in tensors_in(outputs):
                self._add("forward", name, output)
                if output.requires_grad:
                    hook = partial(self._add, "backward", name)
                    output.register_hook(hook)  # type: ignore[no-untyped-call]  # torch has no hints there

        return record

    def _add(self, phase: str, name: str, tensor: Tensor | None) -> None:
        local = None if tensor is None else local_part(tensor)
        if local is None or len(self._records) >= _MAX_RECORDS:
            return
        values = local.to(torch.float64) if not local.is_complex() else local.abs().to(torch.float64)
        finite = values[torch.isfinite(values)]
        low, high = (finite.min().item(), finite.max().item()) if finite.numel() else (None, None)
        self._records.append(
            LayerRecord(
                phase, name, list(local.shape), low, high,
                norm=finite.norm().item(),
                not_finite=values.numel() - finite.numel(),
                digest=hexadecimal(TensorDigests().take([local])[0]),
            )
        )  # fmt: skip
