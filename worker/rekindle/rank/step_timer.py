"""Measures what the time of a training step is spent on, without changing the script.

In a sampled step the training thread marks where it enters the data loader, the first layer, the backward pass, the
optimizer, a wait for other ranks, and saving. A mark is the time of a clock or, where a GPU computes, an event on its
stream, which is read when the GPU has passed it: nothing waits for the device. A step ends where the optimizer that
was used first has stepped. Steps are sampled whose numbers are multiples of a power of two, so that ranks in lockstep
sample the same ones and can be compared.

What scripts call stays as it is: the hooks are torch's own, or replace functions that its modules use internally.
Those that run in every step take less than a microsecond; ``torch.compile`` sees none of them.
"""

import os
import sys
import time
import weakref
from collections import UserDict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from itertools import pairwise
from pathlib import Path
from threading import get_ident
from typing import Any

from rekindle.contract.files import write_json
from rekindle.contract.run_dir.step_records import StepPhase, StepSample, StepSamples
from rekindle.rank.distributed_hooks import call_when_loaded

KEPT = 64  # samples
INTERVAL = 0.3  # seconds between two samples, at least
WARM_UP = 3  # steps that do not count: torch allocates, compiles, and chooses algorithms
_WRITE_INTERVAL = 2.0  # seconds
_MAX_UNREAD = 4  # samples whose events a GPU has not passed yet
_MAX_OTHERS = 1000  # steps of other optimizers, after which the first one counts as gone
_MAX_ITEMS = 64  # of a batch, that are counted
_SHORT = 0.001  # seconds; less is no save

_Marks = list[tuple[StepPhase | None, Any]]
"""Phases with the times or events at which they begin; None: between the batch and the first layer, or backward."""


class StepTimer:
    """Times the steps of this process into ``path``; ``ranks``: how many of them share the cores."""

    def __init__(self, path: Path, ranks: int) -> None:
        usable = len(os.sched_getaffinity(0))
        self._cores = usable if usable < (os.cpu_count() or 1) else max(1, usable // max(1, ranks))
        self._path = path
        self._torch: Any = None
        self._thread: int | None = None  # that trains; others are ignored
        self._optimizer: Callable[[], Any] = lambda: None  # whose step ends a step, unless it is gone
        self._others = 0  # steps of other optimizers since its latest
        self._step = 0  # finished ones
        self._began = self._sampled_at = 0.0  # seconds of CLOCK_MONOTONIC: of what counts, of the latest sample
        self._sampled_step, self._every = 0, 1
        self._marks: _Marks | None = None  # of the step that is sampled now
        self._clock: Callable[[], Any] = time.monotonic
        self._elements: int | None = None
        self._first_layer: Any = None  # handle of the hook that waits for it
        self._is_saving = self._is_backward = False
        self._saved, self._saves, self._saved_step = 0.0, 0, -1
        self._workers: int | None = None
        self._unread: deque[tuple[_Marks, Callable[..., StepSample]]] = deque(maxlen=_MAX_UNREAD)
        self._samples: deque[StepSample] = deque(maxlen=KEPT)
        self._written_at = -_WRITE_INTERVAL

    def install(self) -> None:
        """Hook torch as soon as the script has loaded it. Processes that the script starts are not timed."""
        os.register_at_fork(after_in_child=self._stop)
        waits = partial(self._timed, StepPhase.COMMUNICATION)
        call_when_loaded(
            [
                ("torch.optim.optimizer", "register_optimizer_step_post_hook", self._hook_optimizers),
                ("torch.utils.data.dataloader", "_BaseDataLoaderIter", self._hook_loaders),
                ("torch.autograd", "_engine_run_backward", self._hook_backward),
                ("torch.distributed.distributed_c10d", "Work", lambda module: _replace(module.Work, "wait", waits)),
                ("torch.distributed", "_broadcast_coalesced", partial(_replace, name="_broadcast_coalesced", by=waits)),
                ("torch.serialization", "_save", partial(_replace, name="_save", by=self._saving)),
                ("safetensors.torch", "serialize_file", partial(_replace, name="serialize_file", by=self._saving)),
                ("rekindle.training.snapshots.async_saver", "AsyncSaver", self._hook_saver),
            ]
        )

    def _stop(self) -> None:
        self._thread, self._marks = -1, None

    # --- hooks

    def _hook_optimizers(self, module: Any) -> None:
        torch = module.torch  # it may not be complete yet

        def begin(*_: Any) -> None:
            if not torch.compiler.is_compiling() and self._is_sampling:
                self._switch(StepPhase.OPTIMIZER)

        def end(optimizer: Any, *_: Any) -> None:
            if not torch.compiler.is_compiling():
                self._torch = torch
                self._end_optimizer(optimizer)

        module.register_optimizer_step_pre_hook(begin)
        module.register_optimizer_step_post_hook(end)

    def _hook_loaders(self, module: Any) -> None:
        def timed(load: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(load)
            def load_and_count(iterator: Any) -> Any:
                if not self._is_sampling or not self._torch.is_grad_enabled():  # an evaluation
                    return load(iterator)
                self._switch(StepPhase.DATA)
                try:
                    batch = load(iterator)
                finally:
                    self._switch(None)
                self._workers = getattr(iterator, "_num_workers", None)
                self._elements = (self._elements or 0) + _count_elements(batch, self._torch.Tensor)
                self._await_first_layer()
                return batch

            return load_and_count

        _replace(module._BaseDataLoaderIter, "__next__", timed)
        _replace(module.DataLoader, "__iter__", partial(self._timed, StepPhase.DATA))

    def _hook_backward(self, module: Any) -> None:
        def timed(run: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(run)
            def run_timed(outputs: Any, *arguments: Any, **options: Any) -> Any:
                if not self._is_sampling or self._is_backward:
                    return run(outputs, *arguments, **options)
                self._is_backward, handle = True, self._hook_root(outputs)
                self._switch(StepPhase.BACKWARD)
                try:
                    return run(outputs, *arguments, **options)
                finally:
                    self._is_backward = False
                    self._switch(StepPhase.OTHER)
                    if handle is not None:
                        handle.remove()

            return run_timed

        _replace(module, "_engine_run_backward", timed)

    def _hook_root(self, outputs: Any) -> Any:
        """Have the engine call back between the last gradient and what ranks then wait for; None where it cannot.

        Callbacks run in their order: this one, which the first gradient queues, before that of DDP or FSDP.
        """
        compiled = sys.modules.get("torch._dynamo.compiled_autograd")
        root = next((each for each in outputs if type(each) is self._torch.Tensor and each.requires_grad), None)
        if root is None or getattr(compiled, "compiled_autograd_enabled", False):
            return None
        engine = self._torch.autograd.Variable._execution_engine
        return root.register_hook(lambda _: engine.queue_callback(self._await_ranks))

    def _await_ranks(self) -> None:
        if self._marks is not None and self._is_backward:
            self._switch(StepPhase.COMMUNICATION)

    def _hook_saver(self, module: Any) -> None:
        for name in ("async_save", "wait"):
            _replace(module.AsyncSaver, name, self._saving)

    def _saving(self, save: Callable[..., Any]) -> Callable[..., Any]:
        """Time every call, not only those in a sampled step: saving is rare and long."""

        @wraps(save)
        def call(*arguments: Any, **options: Any) -> Any:
            if get_ident() != self._thread or self._is_saving:
                return save(*arguments, **options)
            self._is_saving, began = True, time.monotonic()
            before = None if self._marks is None else self._switch(StepPhase.SAVING)
            try:
                return save(*arguments, **options)
            finally:
                seconds = time.monotonic() - began
                self._is_saving = False
                self._saved += seconds
                if seconds > _SHORT and self._step != self._saved_step:  # several files of one step are one save
                    self._saves, self._saved_step = self._saves + 1, self._step
                if self._marks is not None:
                    self._switch(before)

        return call

    def _timed(self, phase: StepPhase, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            if not self._is_sampling:
                return function(*arguments, **options)
            before = self._switch(phase)
            try:
                return function(*arguments, **options)
            finally:
                if self._marks is not None:
                    self._switch(before)

        return call

    def _await_first_layer(self) -> None:
        """Mark the next call of a module: the outermost one, since the hook is removed before its layers are called.

        Not where torch.compile is used, which checks for hooks in every call.
        """
        dynamo = sys.modules.get("torch._dynamo.utils")
        if self._first_layer is None and not (dynamo and dynamo.counters.get("frames")):

            def mark(*_: Any) -> None:
                self._forget_first_layer()
                if self._is_sampling and self._marks and self._marks[-1][0] is None and self._torch.is_grad_enabled():
                    self._switch(StepPhase.FORWARD)

            self._first_layer = self._torch.nn.modules.module.register_module_forward_pre_hook(mark)

    def _forget_first_layer(self) -> None:
        handle, self._first_layer = self._first_layer, None
        if handle is not None:
            handle.remove()

    # --- steps

    @property
    def _is_sampling(self) -> bool:
        return self._marks is not None and get_ident() == self._thread

    def _switch(self, phase: StepPhase | None) -> StepPhase | None:
        """Begin ``phase``; returns the one before."""
        marks = self._marks
        if not marks:
            return None
        before = marks[-1][0]
        marks.append((phase, self._clock()))
        return before

    def _end_optimizer(self, optimizer: Any) -> None:
        if get_ident() != self._thread:
            if self._thread is not None:
                return
            self._thread = get_ident()
        if self._marks is not None:
            self._switch(StepPhase.OTHER)
        first = self._optimizer()
        if first is not optimizer:
            self._others += 1
            if first is not None and self._others <= _MAX_OTHERS:
                return
            self._optimizer = weakref.ref(optimizer)
        self._others = 0
        self._end_step(time.monotonic())

    def _end_step(self, now: float) -> None:
        self._step += 1
        if self._marks is not None:
            self._end_sample(now)
        if self._unread:
            self._read_events()
        if self._step < WARM_UP:
            return
        if self._step == WARM_UP:
            self._began, self._saved, self._saves = now, 0.0, 0
            self._sampled_at, self._sampled_step = now, self._step
        if self._samples and now - self._written_at >= _WRITE_INTERVAL:
            self._write(now)
        if (self._step + 1) % self._every == 0:
            cuda = getattr(self._torch, "cuda", None)
            self._clock = partial(_event, cuda) if cuda is not None and cuda.is_initialized() else time.monotonic
            self._marks, self._elements = [(None, self._clock())], None
            self._await_first_layer()

    def _end_sample(self, now: float) -> None:
        marks, self._marks = self._marks or [], None
        self._forget_first_layer()
        mean = (now - self._sampled_at) / max(1, self._step - self._sampled_step)
        self._sampled_at, self._sampled_step = now, self._step
        while self._every < 1 << 20 and self._every * mean < INTERVAL:
            self._every *= 2
        while self._every > 1 and self._every * mean > 3 * INTERVAL:
            self._every //= 2
        sample = partial(StepSample, self._step, now - self._began, self._saved, elements=self._elements)
        if all(at is not None for _, at in marks):
            self._unread.append((marks, sample))

    def _read_events(self) -> None:
        """Read the samples whose events the GPU has passed; those of the clock are read at once."""
        while self._unread:
            marks, sample = self._unread[0]
            on_gpu = not isinstance(marks[0][1], float)
            if on_gpu and not marks[-1][1].query():
                return
            self._unread.popleft()
            if on_gpu:
                first = marks[0][1]
                marks = [(phase, first.elapsed_time(at) / 1000) for phase, at in marks]
            self._samples.append(sample(seconds=seconds_by_phase(marks, on_gpu=on_gpu)))

    def _write(self, now: float) -> None:
        """Write what is known. Where the disk is full, the next time may fit."""
        self._written_at = now
        content = StepSamples(
            self._step - WARM_UP, now - self._began, self._saved, self._saves, self._cores, self._workers,
            list(self._samples),
        )  # fmt: skip
        with suppress(OSError):
            write_json(self._path, content.to_json(), durable=False)


def seconds_by_phase(marks: _Marks, *, on_gpu: bool) -> dict[str, float]:
    """Seconds of each phase; the last mark is the end.

    What no layer has begun belongs to the forward pass where backward follows, since functions need no module. What
    comes before the first layer is copying on a GPU, if a loader has loaded the batch.
    """
    sums: dict[StepPhase, float] = {}
    open_seconds, copies = 0.0, StepPhase.OTHER
    for (phase, begin), (following, end) in pairwise(marks):
        if phase is None:
            open_seconds += end - begin
        else:
            sums[phase] = sums.get(phase, 0.0) + end - begin
            if phase is StepPhase.DATA and on_gpu:
                copies = StepPhase.COPY
        owner = {StepPhase.DATA: StepPhase.OTHER, StepPhase.FORWARD: copies, StepPhase.BACKWARD: StepPhase.FORWARD}
        if following in owner:
            sums[owner[following]] = sums.get(owner[following], 0.0) + open_seconds
            open_seconds = 0.0
    sums[StepPhase.OTHER] = sums.get(StepPhase.OTHER, 0.0) + open_seconds
    return {phase: round(seconds, 7) for phase, seconds in sums.items() if seconds > 0}


def _replace(owner: Any, name: str, by: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    setattr(owner, name, by(getattr(owner, name)))


def _event(cuda: Any) -> Any:
    """An event at this point of the current stream; None while the stream is captured as a graph."""
    if cuda.is_current_stream_capturing():
        return None
    event = cuda.Event(enable_timing=True)
    event.record()
    return event


def _count_elements(batch: Any, tensor: type) -> int:
    """Elements of the tensors in a batch, of plain tensors in plain collections only: no code of the script runs."""
    total, items = 0, deque([batch])
    for _ in range(_MAX_ITEMS):
        if not items:
            break
        item = items.popleft()
        if type(item) is tensor:
            total += item.numel()  # type: ignore[attr-defined]
        elif type(item) in (list, tuple):
            items.extend(item[:_MAX_ITEMS])
        elif isinstance(item, dict | UserDict):
            items.extend(list(item.values())[:_MAX_ITEMS])
    return total
