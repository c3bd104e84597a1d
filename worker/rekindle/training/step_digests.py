"""The digests of a training at every Nth step: recorded by each rank, and compared among replicas while it runs."""

import hashlib
import json
import logging
import platform
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rekindle.contract.files import append_lines
from rekindle.contract.run_dir.digest_records import DigestNames, StepDigest, TensorKind, hexadecimal, pack
from rekindle.contract.safe_open import regular_size
from rekindle.training import rng
from rekindle.training.process_group import World
from rekindle.training.reporter import reporter
from rekindle.training.sampler import ElasticSampler, TrainingProgress
from rekindle.training.tensor_digests import TensorDigests, local_part, tensors_in
from rekindle.training.training_state import Stateful

INTERVAL = 100  # steps, by default
_MAX_BYTES = 16 << 20  # of an attempt's records, after which half as many follow, and so on
_COMPARED = (TensorKind.GRADIENTS, TensorKind.PARAMETERS, TensorKind.OPTIMIZER)
_NAMED = 3  # tensors
_log = logging.getLogger("rekindle")

OnDivergence = Literal["continue", "rollback", "stop"]


class DivergenceError(ArithmeticError):
    """Raised on every rank where replicas have silently become different ones, and ``on_divergence`` is ``stop``."""


class DivergenceRollback(DivergenceError):  # noqa: N818  # the name is what people read
    """The same where it is ``rollback``: the next attempt resumes from the latest snapshot."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """Tensors of ``ranks`` that are not what they are on the other ranks."""

    ranks: list[int]
    kind: TensorKind  # the first of a step
    names: list[str]
    step: int
    equal_step: int  # the latest at which all were the same

    def __str__(self) -> str:
        count = len(self.ranks)
        who = f"rank {self.ranks[0]}" if count == 1 else f"ranks {', '.join(map(str, self.ranks[:8]))}"
        more = "" if len(self.names) <= _NAMED else f" and {len(self.names) - _NAMED} more"
        when = (
            f"step {self.step}" if self.equal_step + 1 == self.step else f"steps {self.equal_step + 1} to {self.step}"
        )
        return f"silent divergence in {when}: {who}, {self.kind} of {', '.join(self.names[:_NAMED])}{more}"


@dataclass(slots=True)
class DigestRecorder:
    """Takes the digests of one rank. ``begin_step`` and ``end_step`` are called by all ranks at the same step.

    ``parts`` are what ``Run`` saves besides the model. ``path``: where to record them; None: nowhere. ``replicated``:
    the ranks have the same model, so they compare it: bit by bit among those whose processors are of one kind.
    """

    world: World
    module: nn.Module
    parts: dict[str, Stateful]
    progress: TrainingProgress
    interval: int
    replicated: bool
    path: Path | None
    logged: Callable[[int], dict[str, float]]
    on_divergence: OnDivergence = "continue"
    _take: dict[TensorKind, TensorDigests] = field(
        default_factory=lambda: {kind: TensorDigests() for kind in TensorKind}
    )
    _gradients: list[int] | None = None  # of the current step, as the optimizer has found them
    _data: tuple[list[int], str, str | None] | None = None
    _names: DigestNames | None = None  # that were written last
    _written: int = 0  # bytes
    _agreed: int = 0  # bytes of the largest file, the same on all ranks: they compare at the same steps
    _equal_step: int = 0
    _diverged: set[tuple[int, str]] = field(default_factory=set)
    _processor: int = 0

    def __post_init__(self) -> None:
        if self.on_divergence not in get_args(OnDivergence):
            known = ", ".join(get_args(OnDivergence))
            raise ValueError(f"on_divergence must be one of {known}, not {self.on_divergence!r}")
        self._processor = _hash(_processor_name(self.world.device).encode())
        self._equal_step = self.progress.step
        for optimizer in self._optimizers:
            optimizer.register_step_pre_hook(self._before_optimizer)

    @property
    def due(self) -> bool:
        """True within a step of which there will be digests."""
        every = self.interval
        return every > 0 and (self.progress.step + 1) % (every << self._agreed // _MAX_BYTES) == 0

    def begin_step(self, sampler: ElasticSampler) -> None:
        """Note which samples the step uses."""
        if self.due:
            begin, order = sampler.position, hexadecimal(rng.derived_seed(*sampler.order_key))
            self._data, self._gradients = ([begin, begin + sampler.next_sizes()[1]], order, None), None

    def note_batch(self, batch: Any) -> None:
        """Note what this rank's batch holds."""
        if self._data is not None:
            self._data = *self._data[:2], hexadecimal(_rolled(_digests_in(batch)))

    def end_step(self) -> None:
        """Take the digests after a step that is counted, compare and record them.

        Raises DivergenceError and DivergenceRollback, as ``on_divergence`` says, on all ranks.
        """
        if self._data is None:
            return
        (samples, order, batch), self._data = self._data, None
        names, tensors = self._find()
        if self.world.rank != 0:
            del tensors[TensorKind.BUFFERS]
        digests = {kind: self._take[kind].take(list(tensors[kind].values())) for kind in tensors}
        if self._gradients is not None:
            digests[TensorKind.GRADIENTS], self._gradients = self._gradients, None
        divergence, same = self._compare(names, digests)
        record = StepDigest(
            self.progress.step, self.progress.epoch, samples, order, batch,
            random=self._random(), parts=self._parts(),
            logged={name: value.hex() for name, value in self.logged(self.progress.step).items()},
            tensors={kind: pack(digests[kind]) for kind in TensorKind if kind in digests and kind not in same},
        )  # fmt: skip
        self._write(names, record)
        if divergence is not None:
            self._report(divergence)

    def check(self) -> None:
        """Compare the replicas before what they hold is saved, where a difference is to have consequences."""
        if self._compares and self.on_divergence != "continue" and self.interval > 0:
            names, tensors = self._find()
            digests = {kind: self._take[kind].take(list(tensors[kind].values())) for kind in _COMPARED[1:]}
            if (divergence := self._compare(names, digests)[0]) is not None:
                self._report(divergence)

    @property
    def _compares(self) -> bool:
        return self.replicated and self.world.size > 1

    @property
    def _optimizers(self) -> list[torch.optim.Optimizer]:
        return [part for part in self.parts.values() if isinstance(part, torch.optim.Optimizer)]

    def _before_optimizer(self, *_: Any) -> None:
        """Take the digests of the gradients; where several optimizers step, of those at the last one."""
        if self._data is not None:
            gradients = [None if each.grad is None else local_part(each.grad) for _, each in self._parameters()]
            self._gradients = self._take[TensorKind.GRADIENTS].take(gradients)

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        ignored = getattr(self.module, "_ddp_params_and_buffers_to_ignore", ())
        for name, parameter in self.module.named_parameters():
            if name not in ignored:
                yield name, parameter

    def _find(self) -> tuple[DigestNames, dict[TensorKind, dict[str, Tensor | None]]]:
        parameters = dict(self._parameters())
        by_id = {id(parameter): name for name, parameter in parameters.items()}
        state: dict[str, Tensor | None] = {}
        for optimizer in self._optimizers:
            for parameter, values in optimizer.state.items():
                for key, value in values.items():
                    if isinstance(value, Tensor) and id(parameter) in by_id:
                        state[f"{key} {by_id[id(parameter)]}"] = local_part(value)
        buffers = {name: local_part(buffer) for name, buffer in self.module.named_buffers()}
        tensors: dict[TensorKind, dict[str, Tensor | None]] = {
            TensorKind.PARAMETERS: {name: local_part(each) for name, each in parameters.items()},
            TensorKind.OPTIMIZER: state,
            TensorKind.BUFFERS: buffers,
        }
        return DigestNames(list(parameters), list(state), list(buffers)), tensors

    def _compare(
        self, names: DigestNames, digests: dict[TensorKind, list[int]]
    ) -> tuple[Divergence | None, set[TensorKind]]:
        """What has diverged, and the kinds of which rank 0 has the same digests; all ranks find the same divergence."""
        if not self._compares:
            self._agreed = self._written
            return None, set()
        own = [digests.get(kind, []) for kind in _COMPARED]
        shape = _hash(json.dumps([names.parameters, names.optimizer, *map(len, own)]).encode())
        rows = self._all_gather([shape, self._processor, self._written, *(_rolled(each) for each in own)])
        self._agreed = max(row[2] for row in rows)
        first, mine = rows[0], rows[self.world.rank]
        same = {kind for index, kind in enumerate(_COMPARED, 3) if mine[0] == first[0] and mine[index] == first[index]}
        if self.world.rank == 0:
            same = set()
        if all(row[3:] == first[3:] for row in rows) or any(row[0] != first[0] for row in rows):
            self._equal_step = self.progress.step
            return None, same
        vectors = self._all_gather([digest for each in own for digest in each])
        return self._find_divergence(names, [len(each) for each in own], vectors, [row[1] for row in rows]), same

    def _find_divergence(
        self, names: DigestNames, sizes: list[int], vectors: list[list[int]], processors: list[int]
    ) -> Divergence | None:
        kinds = [kind for kind, size in zip(_COMPARED, sizes, strict=True) for _ in range(size)]
        texts = [name for kind, size in zip(_COMPARED, sizes, strict=True) for name in names.of(kind)[:size]]
        found: dict[TensorKind, tuple[set[int], list[str]]] = {}
        new = set()
        for kind, name, values in zip(kinds, texts, zip(*vectors, strict=True), strict=True):
            odd = odd_ranks(values, processors)
            if fresh := {(rank, f"{kind} {name}") for rank in odd} - self._diverged:
                new |= fresh
                ranks, listed = found.setdefault(kind, (set(), []))
                ranks.update(odd)
                listed.append(name)
        if not new:
            self._equal_step = self.progress.step if not self._diverged else self._equal_step
            return None
        self._diverged |= new
        kind = next(kind for kind in _COMPARED if kind in found)
        ranks, listed = found[kind]
        return Divergence(sorted(ranks), kind, listed, self.progress.step, self._equal_step)

    def _report(self, divergence: Divergence) -> None:
        reporter().update_status(suspect_step=divergence.equal_step + 1)
        if self.on_divergence == "stop":
            raise DivergenceError(f"{divergence}; on_divergence='continue' or 'rollback' would continue")
        if self.on_divergence == "rollback":
            raise DivergenceRollback(str(divergence))
        if self.world.rank == 0:
            reporter().warn(str(divergence))

    def _all_gather(self, values: list[int]) -> list[list[int]]:
        own = torch.tensor(values)
        rows = [torch.empty_like(own) for _ in range(self.world.size)]
        dist.all_gather(rows, own, group=self.world.control)
        return [row.tolist() for row in rows]

    def _random(self) -> str:
        """One digest of the states of this rank's random number generators."""
        state = rng.capture(self.world.device)
        del state["all_cuda"]  # of others, too: a replay may see fewer
        plain = repr([state["python"], state["numpy"]])
        return hexadecimal(_rolled([*_digests_in(state), _hash(plain.encode())]))

    def _parts(self) -> str | None:
        """One digest of scheduler and scaler; other parts may take long to give their state."""
        others = {name: self.parts[name] for name in ("scheduler", "scaler") if name in self.parts}
        if not others:
            return None
        digests = []
        for name, part in others.items():
            state = part.state_dict()
            plain = json.dumps([name, state], skipkeys=True, default=_describe)
            digests += [_hash(plain.encode()), *_digests_in(state)]
        return hexadecimal(_rolled(digests))

    def _write(self, names: DigestNames, record: StepDigest) -> None:
        """Append the record; where the disk is full, the training continues."""
        if self.path is None:
            return
        lines = [] if names == self._names else [names.to_json()]
        try:
            append_lines(self.path, [*lines, record.to_json()], durable=False)
            self._names = names
        except OSError as error:
            _log.debug("digests of step %s not written: %s", record.step, error)
        self._written = regular_size(self.path)


def odd_ranks(values: tuple[int, ...], processors: list[int]) -> set[int]:
    """The ranks whose value is not that of most ranks with such a processor; all of these where no value is most."""
    odd: set[int] = set()
    for kind in set(processors):
        own = {rank: value for rank, value in enumerate(values) if processors[rank] == kind}
        counts = Counter(own.values()).most_common(2)
        tied = len(counts) > 1 and counts[0][1] == counts[1][1]
        odd.update(rank for rank, value in own.items() if len(counts) > 1 and (tied or value != counts[0][0]))
    return odd


def _describe(value: Any) -> str:
    """What stands for a value that JSON has not: a tensor has a digest besides."""
    return "tensor" if isinstance(value, Tensor) else repr(value)


def _rolled(digests: list[int]) -> int:
    """One signed 64-bit number for several, in their order."""
    return _hash(pack(digests).encode())


def _hash(content: bytes) -> int:
    """A signed 64-bit number."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big", signed=True)


def _digests_in(value: Any) -> list[int]:
    """The digests of all tensors in lists, tuples and dicts."""
    return TensorDigests().take([local_part(each) for each in tensors_in(value)])


def _processor_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith(("model name", "CPU part")):
                return line
    return platform.machine()
