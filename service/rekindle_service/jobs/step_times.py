"""What the time of a training step is spent on, rank by rank, and what limits its speed, in a sentence with advice.

In lockstep all ranks have equally long steps: the fast ones wait in communication. So the slowest rank is the one that
is busy longest, its split is that of the step, and communication costs no more than what all ranks wait in a step.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from statistics import fmean, median
from typing import NamedTuple

from rekindle.contract.field_texts import Described
from rekindle.contract.job import JobSpec
from rekindle.contract.run_dir.attempt_history import AttemptSummary
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.step_records import StepPhase, StepSamples
from rekindle_service.run_readers.rank_rows import rank_numbers

MIN_SAMPLES = 5  # of a rank
_COMPUTING = (StepPhase.FORWARD, StepPhase.BACKWARD, StepPhase.OPTIMIZER)
_LARGER = 1.1  # times as many elements: batches are not of equal size
_MARGIN = 1.15  # by which a rank may be slower than its batches explain
_EXPLAINED = 0.7  # share of the steps in which the largest batch was the slowest


class StepLimit(StrEnum):
    """What limits the speed of a training."""

    DATA = "data"  # the data loader
    COPY = "copy"  # what precedes the first layer on a GPU
    COMMUNICATION = "communication"  # transfers between ranks
    SAVING = "saving"
    SLOW_RANK = "slow_rank"  # with equal work
    UNEVEN_BATCHES = "uneven_batches"
    OTHER = "other"  # other code of the script
    COMPUTE = "compute"  # nothing but the computation


_MIN_SHARE = {  # of a step, from which on a limit is named
    StepLimit.DATA: 0.15, StepLimit.COPY: 0.15, StepLimit.COMMUNICATION: 0.25, StepLimit.SAVING: 0.05,
    StepLimit.SLOW_RANK: 0.1, StepLimit.UNEVEN_BATCHES: 0.1, StepLimit.OTHER: 0.2, StepLimit.COMPUTE: 0.0,
}  # fmt: skip
_NONE = "Not measured: no rank has taken several steps with an optimizer of torch in its own process."
_COPY = "precedes the first layer, above all the copy to the GPU; use pin_memory=True, and non_blocking=True in .to()"
_TRANSFER = "waits for transfers; send less often (no_sync() while gradients accumulate) or less (bf16_compress_hook)"
_OTHER = "is other code of the script, such as logging, evaluation, or data that no DataLoader loads"
_COMPUTE = "is forward, backward and optimizer"
_UNEVEN = "waits for the rank with the largest batch; group samples of similar length"
_EVEN = "give all ranks batches of equal size"
_COMPARE = "compare its processor or GPU, and what else runs there"


@dataclass(frozen=True, slots=True)
class RankSplit(Described):
    """What one rank spends its steps on."""

    rank: int
    """Global rank."""
    samples: int
    """Number of steps that were measured, the latest ones."""
    seconds: dict[StepPhase, float]
    """Mean seconds of a step by phase: `data` (waiting for the data loader), `copy` (from the batch to the first layer,
    on a GPU), `forward`, `backward`, `communication` (waiting for other ranks), `optimizer`, `saving` and `other`."""
    batch_elements: float | None
    """Mean number of elements in the tensors of its batches; null where no `DataLoader` has loaded any."""

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    @property
    def busy(self) -> float:
        return self.total - self.seconds[StepPhase.COMMUNICATION]


@dataclass(frozen=True, slots=True)
class StepTimes(Described):
    """What the time of a step is spent on. Of a job with several ranks it is that of the slowest."""

    attempt: int | None
    """Number of the attempt; null before the first."""
    limit: StepLimit | None
    """What limits the speed: `data`, `copy`, `communication`, `saving`, `slow_rank`, `uneven_batches`, `other` or
    `compute`; null where it is not measured."""
    summary: str
    """The same in a sentence with advice, or why nothing is measured."""
    rank: int | None = None
    """Slowest rank, for which the others wait; null where it is not measured."""
    step_seconds: float | None = None
    """Mean seconds of a step; null where it is not measured."""
    seconds: dict[StepPhase, float] = field(default_factory=dict)
    """Mean seconds of a step of that rank, by phase; empty where it is not measured."""
    ranks: list[RankSplit] = field(default_factory=list)
    """Ranks that were measured."""


def read_step_times(spec: JobSpec, run_dir: RunDir, attempt: AttemptSummary) -> StepTimes:
    """What the ranks of an attempt have written."""
    number, directory = attempt.number, run_dir.attempt(attempt.number)
    if not spec.step_times:
        return StepTimes(number, None, "Not measured: the job was submitted with --no-step-times.")
    ranks = rank_numbers(run_dir, attempt)
    found = {rank: read_record(directory.rank(rank).steps, StepSamples, run_dir.root) for rank in ranks}
    known = {rank: samples for rank, samples in found.items() if samples is not None}
    count = min((len(samples.samples) for samples in known.values()), default=0)
    if not known:
        return StepTimes(number, None, _NONE)
    return judge(number, known) if count >= MIN_SAMPLES else StepTimes(number, None, f"{count} steps are measured.")


def judge(attempt: int, ranks: Mapping[int, StepSamples]) -> StepTimes:
    """Find what limits the speed; each rank has some samples. Pure."""
    splits = [split(rank, samples) for rank, samples in ranks.items()]
    slowest = max(splits, key=lambda each: each.busy)
    others = [each for each in splits if each is not slowest] or [slowest]
    costs = [each for each in _World(splits, slowest, others, ranks).costs() if each.share >= _MIN_SHARE[each.limit]]
    largest = max(costs, key=lambda each: each.share)
    return StepTimes(attempt, largest.limit, largest.text, slowest.rank, slowest.total, slowest.seconds, splits)


def split(rank: int, found: StepSamples) -> RankSplit:
    """Average the samples. Saving is rare, so its share is that of all steps; so is what no sample has met."""
    samples = found.samples
    seconds = {phase: fmean(each.seconds.get(phase, 0.0) for each in samples) for phase in StepPhase}
    first, last = samples[0], samples[-1]
    if last.step > first.step:
        mean = (last.ended - first.ended - (last.saving - first.saving)) / (last.step - first.step)
        seconds[StepPhase.OTHER] += max(0.0, mean - sum(seconds.values()) + seconds[StepPhase.SAVING])
    seconds[StepPhase.SAVING] = found.saving / max(found.steps, 1)
    elements = [each.elements for each in samples if each.elements is not None]
    return RankSplit(rank, len(samples), seconds, fmean(elements) if elements else None)


class _Cost(NamedTuple):
    """What may limit the speed: the share of a step that it takes, and a sentence."""

    share: float
    limit: StepLimit
    text: str


@dataclass(frozen=True, slots=True)
class _World:
    """The ranks that are compared: a rank alone is compared with itself."""

    splits: Sequence[RankSplit]
    slowest: RankSplit
    others: Sequence[RankSplit]
    samples: Mapping[int, StepSamples]

    def costs(self) -> Iterator[_Cost]:
        """Everything that may limit the speed."""
        share = {phase: self._of_step(seconds) for phase, seconds in self.slowest.seconds.items()}
        data, copy, other = share[StepPhase.DATA], share[StepPhase.COPY], share[StepPhase.OTHER]
        transfer, computing = self._of_step(self._transfer()), sum(share[phase] for phase in _COMPUTING)
        where, is_usual = (
            self._on(self.slowest),
            self._usual(StepPhase.DATA) > 0.75 * self.slowest.seconds[StepPhase.DATA],
        )
        data_text = f"Input-bound: {data:.0%} of a step waits for the data loader{'' if is_usual else f', most{where}'}"
        yield _Cost(data, StepLimit.DATA, f"{data_text}; {self._loader_advice()}")
        yield _Cost(copy, StepLimit.COPY, f"{copy:.0%} of a step {_COPY}")
        yield _Cost(transfer, StepLimit.COMMUNICATION, f"Communication-bound: {transfer:.0%} of a step {_TRANSFER}")
        yield self._saving()
        yield from self._imbalance()
        yield _Cost(other, StepLimit.OTHER, f"{other:.0%} of a step{where} {_OTHER}")
        yield _Cost(0.0, StepLimit.COMPUTE, f"Compute-bound: {computing:.0%} of a step {_COMPUTE}")

    def _of_step(self, seconds: float) -> float:
        return seconds / self.slowest.total if self.slowest.total > 0 else 0.0

    def _usual(self, phase: StepPhase) -> float:
        """Median of the others."""
        return median(each.seconds[phase] for each in self.others)

    def _on(self, rank: RankSplit) -> str:
        return f" on rank {rank.rank}" if len(self.splits) > 1 else ""

    def _loader_advice(self) -> str:
        workers, cores = self.samples[self.slowest.rank].workers or 0, self.samples[self.slowest.rank].cores
        if workers == 0:
            return f"try num_workers={min(4, max(2, cores))}"
        if workers < max(4, cores):
            return f"try num_workers={2 * workers} instead of {workers}"
        return f"it has {workers} workers already: make a sample cheaper to load, or cache it"

    def _saving(self) -> _Cost:
        saver = max(self.splits, key=lambda each: each.seconds[StepPhase.SAVING])
        share, found = self._of_step(saver.seconds[StepPhase.SAVING]), self.samples[saver.rank]
        every = f"Saving every {found.seconds / max(found.saves, 1):.3g} s"
        text = f"{every} costs {share:.0%} of the time{self._on(saver)}; save less often, or in the background"
        return _Cost(share, StepLimit.SAVING, text)

    def _imbalance(self) -> Iterator[_Cost]:
        """Ranks that wait for a slower one: for the same one, or for another one in each step."""
        slowest, usual_busy = self.slowest, median(each.busy for each in self.others)
        more = {phase: slowest.seconds[phase] - self._usual(phase) for phase in StepPhase}
        phase = max(set(StepPhase) - {StepPhase.COMMUNICATION}, key=more.__getitem__)
        if phase not in (StepPhase.DATA, StepPhase.SAVING, StepPhase.OTHER):  # these are costs of their own
            yield self._slow_rank(phase, self._of_step(slowest.busy - usual_busy))
        if self._largest_is_slowest():
            share = self._of_step(fmean(each.total for each in self.splits) - slowest.busy - self._transfer())
            yield _Cost(share, StepLimit.UNEVEN_BATCHES, f"Uneven batches: {share:.0%} of a step {_UNEVEN}")

    def _slow_rank(self, phase: StepPhase, share: float) -> _Cost:
        rank, usual = self.slowest, self._usual(phase)
        waiting = f"the others wait for it {share:.0%} of a step"
        ratio = rank.seconds[phase] / usual if usual > 0 else inf
        known = [each.batch_elements for each in self.others if each.batch_elements]
        larger = rank.batch_elements / median(known) if rank.batch_elements and known else None
        if larger is not None and larger >= _LARGER and ratio <= _MARGIN * larger**2:  # attention grows by the square
            text = f"Uneven batches: those of rank {rank.rank} are {larger:.1f} times as large, and {waiting}; {_EVEN}"
            return _Cost(share, StepLimit.UNEVEN_BATCHES, text)
        slower = f"takes {ratio:.1f} times as long as the others" if ratio < 100 else "is slower than the others"
        work = "" if larger is None else " with batches of equal size" if larger < _LARGER else " even for its batches"
        text = f"Slow rank: rank {rank.rank} {slower} in {phase}{work}, and {waiting}; {_COMPARE}"
        return _Cost(share, StepLimit.SLOW_RANK, text)

    def _largest_is_slowest(self) -> bool:
        """True where in most steps with batches of several sizes the rank with the largest one waits least."""
        found = [
            waits[sizes.index(max(sizes))] == min(waits)
            for waits, sizes in self._common_steps()
            if min(sizes) > 0 and max(sizes) >= _LARGER * min(sizes)
        ]
        return len(found) >= MIN_SAMPLES and fmean(found) >= _EXPLAINED

    def _transfer(self) -> float:
        """Seconds of a step that every rank waits, as the last one to come does."""
        waits = [min(each) for each, _ in self._common_steps()]
        means = (each.seconds[StepPhase.COMMUNICATION] for each in self.splits)
        return fmean(waits) if len(waits) >= MIN_SAMPLES else min(means)

    def _common_steps(self) -> Iterator[tuple[list[float], list[int]]]:
        """Waits of the ranks, and sizes of their batches, for each step that all of them have sampled."""
        ranks = [{each.step: each for each in found.samples} for found in self.samples.values()]
        for step in set.intersection(*map(set, ranks)):
            of_step = [rank[step] for rank in ranks]
            waits = [each.seconds.get(StepPhase.COMMUNICATION, 0.0) for each in of_step]
            yield waits, [each.elements or 0 for each in of_step]
