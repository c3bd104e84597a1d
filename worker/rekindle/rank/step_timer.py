"""Measures what the time of a training step is spent on, without changing the script.

In a sampled step the training thread marks where it enters the data loader, the first layer, the backward pass, the
optimizer, a wait for other ranks, and saving. A mark is a time or, where a GPU computes, an event on its stream, which
is read once the GPU has passed it: nothing waits for the device. Steps are sampled whose numbers are multiples of a
power of two, so that ranks in lockstep sample the same ones and can be compared.

What scripts call stays as it is: the hooks are torch's own, or replace functions that its modules use internally. In
other steps each takes less than a microsecond; ``torch.compile`` sees none of them.
"""

import os
import sys
import time
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
from rekindle.rank.import_hooks import call_when_loaded, replacement

INTERVAL = 0.3  # seconds between two samples, at least
_KEPT = 64  # samples
_WARM_UP = 3  # steps that do not count: torch allocates, compiles, and chooses algorithms
_WRITE_INTERVAL = 2.0  # seconds
_MAX_UNREAD = 4  # samples whose events a GPU has not passed yet
_MAX_ITEMS = 64  # of a batch, that are counted
_SHORT = 0.001  # seconds; less is no save

_Phase = StepPhase | None
"""None: between the batch and the first layer, or backward."""
_Marks = list[tuple[_Phase, Any]]
"""Phases, each with the time or event at which it begins."""
_Function = Callable[..., Any]


class StepTimer:
    """Times the steps of this process into ``path``; ``ranks``: how many of them share the cores."""

    def __init__(self, path: Path, ranks: int) -> None:
        usable = len(os.sched_getaffinity(0))
        self._cores = usable if usable < (os.cpu_count() or 1) else max(1, usable // max(1, ranks))
        self._path, self._written_at = path, -_WRITE_INTERVAL
        self._torch: Any = None
        self._thread: int | None = None  # that trains; others are ignored
        self._stepped: set[int] = set()  # optimizers; the step ends where one of them steps again
        self._step, self._sampled_step, self._every = 0, 0, 1
        self._began = self._sampled_at = 0.0  # seconds of CLOCK_MONOTONIC: of what counts, of the latest sample
        self._marks: _Marks = []  # of the step that is sampled now
        self._clock: Callable[[], Any] = time.monotonic
        self._elements: int | None = None
        self._first_layer: Any = None  # handle of the hook that waits for it
        self._is_saving = False
        self._saved, self._saves, self._saved_step = 0.0, 0, -1
        self._workers: int | None = None
        self._unread: deque[tuple[_Marks, Callable[..., StepSample]]] = deque(maxlen=_MAX_UNREAD)
        self._samples: deque[StepSample] = deque(maxlen=_KEPT)

    def install(self) -> None:
        """Hook torch as soon as the script has loaded it. Processes that the script starts are not timed."""
        os.register_at_fork(after_in_child=self._stop)
        waits, saves = partial(self._timed, StepPhase.COMMUNICATION), partial(self._timed, StepPhase.SAVING)
        optimizers = ("torch.optim.optimizer", "register_optimizer_step_post_hook", self._hook_optimizers)
        call_when_loaded(
            [
                optimizers,
                replacement("torch.utils.data.dataloader", "__next__", self._loading, "_BaseDataLoaderIter"),
                replacement("torch.autograd", "_engine_run_backward", self._backward),
                replacement("torch.distributed.distributed_c10d", "wait", waits, "Work"),
                replacement("torch.distributed", "_broadcast_coalesced", waits),
                replacement("torch.serialization", "_save", saves),
                replacement("safetensors.torch", "serialize_file", saves),
                replacement("rekindle.training.snapshots.async_saver", "async_save", saves, "AsyncSaver"),
                replacement("rekindle.training.snapshots.async_saver", "wait", saves, "AsyncSaver"),
            ]
        )

    def _stop(self) -> None:
        self._thread, self._marks = -1, []

    # --- hooks

    def _hook_optimizers(self, module: Any) -> None:
        torch = module.torch  # it may not be complete yet
        begun = set[int]()  # a method ``step`` that calls that of its base class begins twice

        def begin(optimizer: Any, *_: Any) -> None:
            if not torch.compiler.is_compiling() and self._thread in (None, get_ident()):
                begun.add(id(optimizer))
                self._switch(StepPhase.OPTIMIZER)

        def end(optimizer: Any, *_: Any) -> None:
            if torch.compiler.is_compiling() or self._thread not in (None, get_ident()) or id(optimizer) not in begun:
                return
            begun.discard(id(optimizer))
            self._torch, self._thread = torch, get_ident()
            self._switch(StepPhase.OTHER)
            if id(optimizer) in self._stepped:
                self._stepped.clear()
                self._end_step(time.monotonic())
            self._stepped.add(id(optimizer))

        module.register_optimizer_step_pre_hook(begin)
        module.register_optimizer_step_post_hook(end)

    def _timed(self, phase: StepPhase, function: _Function, after: Any = ...) -> _Function:
        """Count calls as ``phase``; ``after`` begins then, by default what was before.

        Saving is timed in every step: it is rare and long.
        """

        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            saves = phase is StepPhase.SAVING and get_ident() == self._thread and not self._is_saving
            if not saves and not self._is_sampling:
                return function(*arguments, **options)
            self._is_saving, began, before = self._is_saving or saves, time.monotonic(), self._switch(phase)
            try:
                return function(*arguments, **options)
            finally:
                self._switch(before if after is ... else after)
                if saves:
                    self._count_save(time.monotonic() - began)

        return call

    def _count_save(self, seconds: float) -> None:
        """Several files that are saved in one step are one save."""
        self._is_saving, self._saved = False, self._saved + seconds
        if seconds > _SHORT and self._step != self._saved_step:
            self._saves, self._saved_step = self._saves + 1, self._step

    def _loading(self, load: _Function) -> _Function:
        timed = self._timed(StepPhase.DATA, load, after=None)

        @wraps(load)
        def load_and_count(iterator: Any) -> Any:
            if not self._is_sampling or not self._torch.is_grad_enabled():  # an evaluation
                return load(iterator)
            batch = timed(iterator)
            self._workers = getattr(iterator, "_num_workers", None)
            self._elements = (self._elements or 0) + _count_elements(batch, self._torch.Tensor)
            self._await_first_layer()
            return batch

        return load_and_count

    def _backward(self, run: _Function) -> _Function:
        timed = self._timed(StepPhase.BACKWARD, run, after=None)

        @wraps(run)
        def run_timed(outputs: Any, *arguments: Any, **options: Any) -> Any:
            if not self._is_sampling or self._marks[-1][0] is StepPhase.BACKWARD:
                return run(outputs, *arguments, **options)
            handle = self._hook_root(outputs)
            try:
                return timed(outputs, *arguments, **options)
            finally:
                if handle is not None:
                    handle.remove()
                self._await_first_layer()  # of the next micro-batch

        return run_timed

    def _hook_root(self, outputs: Any) -> Any:
        """Have the engine call back between the last gradient and what ranks then wait for; None where it cannot.

        Callbacks run in their order: this one, which the first gradient queues, before that of DDP or FSDP.
        """
        compiled = sys.modules.get("torch._dynamo.compiled_autograd")
        root = next((each for each in outputs if type(each) is self._torch.Tensor and each.requires_grad), None)
        if root is None or getattr(compiled, "compiled_autograd_enabled", False):
            return None
        engine = self._torch.autograd.Variable._execution_engine
        return root.register_hook(lambda _: engine.queue_callback(partial(self._switch, StepPhase.COMMUNICATION)))

    def _await_first_layer(self) -> None:
        """Mark the next call of a module: the outermost one, since the hook is removed before its layers are called.

        Not where torch.compile is used, which checks for hooks in every call.
        """
        dynamo = sys.modules.get("torch._dynamo.utils")
        if self._first_layer is not None or (dynamo is not None and dynamo.counters.get("frames")):
            return

        def mark(*_: Any) -> None:
            self._forget_first_layer()
            if self._is_sampling and self._marks[-1][0] is None and self._torch.is_grad_enabled():
                self._switch(StepPhase.FORWARD)

        self._first_layer = self._torch.nn.modules.module.register_module_forward_pre_hook(mark)

    def _forget_first_layer(self) -> None:
        handle, self._first_layer = self._first_layer, None
        if handle is not None:
            handle.remove()

    # --- steps

    @property
    def _is_sampling(self) -> bool:
        return bool(self._marks) and get_ident() == self._thread

    def _switch(self, phase: _Phase) -> _Phase:
        """Begin ``phase``, in a sampled step; returns the one before."""
        if not self._marks:
            return None
        before = self._marks[-1][0]
        self._marks.append((phase, self._clock()))
        return before

    def _end_step(self, now: float) -> None:
        self._step += 1
        if self._marks:
            self._end_sample(now)
        self._read_marks()
        if self._step == _WARM_UP:
            self._began = self._sampled_at = now
            self._saved, self._saves, self._sampled_step = 0.0, 0, self._step
        if self._samples and now - self._written_at >= _WRITE_INTERVAL:
            self._write(now)
        if self._step >= _WARM_UP and (self._step + 1) % self._every == 0:
            cuda = self._torch.cuda
            self._clock = partial(_event, cuda) if cuda.is_initialized() else time.monotonic
            self._marks, self._elements = [(None, self._clock())], None
            self._await_first_layer()

    def _end_sample(self, now: float) -> None:
        marks, self._marks = self._marks, []
        self._forget_first_layer()
        mean = (now - self._sampled_at) / (self._step - self._sampled_step)
        self._sampled_at, self._sampled_step = now, self._step
        self._every = 1 << int(INTERVAL / max(mean, 1e-6)).bit_length()
        sample = partial(StepSample, self._step, now - self._began, self._saved, elements=self._elements)
        if all(at is not None for _, at in marks):
            self._unread.append((marks, sample))

    def _read_marks(self) -> None:
        """Read times, and events that the GPU has passed."""
        while self._unread:
            marks, sample = self._unread[0]
            on_gpu = not isinstance(marks[0][1], float)
            if on_gpu:
                if not marks[-1][1].query():
                    return
                marks = [(phase, marks[0][1].elapsed_time(at) / 1000) for phase, at in marks]
            self._unread.popleft()
            self._samples.append(sample(seconds=seconds_by_phase(marks, on_gpu=on_gpu)))

    def _write(self, now: float) -> None:
        """Write what is known. Where the disk is full, the next time may fit."""
        self._written_at, steps, samples = now, self._step - _WARM_UP, list(self._samples)
        totals = steps, now - self._began, self._saved, self._saves
        with suppress(OSError):
            content = StepSamples(*totals, self._cores, self._workers, samples).to_json()
            write_json(self._path, content, durable=False)


def seconds_by_phase(marks: _Marks, *, on_gpu: bool) -> dict[str, float]:
    """Seconds of each phase; the last mark is the end.

    What no layer has begun belongs to the forward pass where backward follows, since functions need no module. What
    precedes the first layer is copying on a GPU, if a loader has loaded the batch.
    """
    sums = dict.fromkeys(StepPhase, 0.0)
    unclear, before_layers = 0.0, StepPhase.OTHER
    for (phase, begin), (following, end) in pairwise(marks):
        if phase is None:
            unclear += end - begin
        else:
            sums[phase] += end - begin
        if phase is StepPhase.DATA and on_gpu:
            before_layers = StepPhase.COPY
        if following in (StepPhase.DATA, StepPhase.FORWARD, StepPhase.BACKWARD):
            owners = {StepPhase.FORWARD: before_layers, StepPhase.BACKWARD: StepPhase.FORWARD}
            sums[owners.get(following, StepPhase.OTHER)] += unclear
            unclear = 0.0
    sums[StepPhase.OTHER] += unclear
    return {phase: round(seconds, 7) for phase, seconds in sums.items() if seconds > 0}


def _event(cuda: Any) -> Any:
    """An event at this point of the current stream; None while the stream is captured as a graph."""
    if cuda.is_current_stream_capturing():
        return None
    event = cuda.Event(enable_timing=True)
    event.record()
    return event


def _count_elements(batch: Any, tensor: type) -> int:
    """Elements of the tensors in a batch, of plain ones in plain collections: no code of the script runs."""
    total, items = 0, deque([batch])
    for _ in range(_MAX_ITEMS):
        item = items.popleft() if items else None
        if type(item) is tensor:
            total += item.numel()  # type: ignore[attr-defined]
        elif type(item) in (list, tuple):
            items.extend(item[:_MAX_ITEMS])  # type: ignore[index]
        elif isinstance(item, dict | UserDict):
            items.extend(list(item.values())[:_MAX_ITEMS])
    return total
