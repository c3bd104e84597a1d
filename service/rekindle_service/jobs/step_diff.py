"""From which step on two trainings are not the same, and in what: the comparison of their digests.

Only steps are compared of which both have digests. A logged value that differs where all else is equal, such as a
speed, is no difference of the training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from rekindle.contract.field_texts import Described
from rekindle.contract.run_dir.digest_records import TensorKind
from rekindle_service.run_readers.digest_series import DigestSeries, RankDigest, StepDigests

_MAX_NAMES = 5  # of tensors or logged values
_SAMPLED = 20  # steps at which logged values are compared where all else is equal


class Phase(StrEnum):
    """What is compared, in the order of a step."""

    ORDER = "order"  # which samples
    BATCH = "batch"  # content of the samples
    RANDOM = "random"  # state of the random number generators after the step
    FORWARD = "forward"  # logged values, such as the loss
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"  # its state
    PARAMETERS = "parameters"
    BUFFERS = "buffers"
    PARTS = "parts"  # other saved state, such as a scheduler's


_OF_EQUAL_WORLDS = frozenset(Phase)
_OF_WHOLE_TENSORS = frozenset({Phase.ORDER, Phase.GRADIENTS, Phase.OPTIMIZER, Phase.PARAMETERS})
_OF_SHARDS = frozenset({Phase.ORDER})
_WORDS = {
    Phase.ORDER: "order of the samples",
    Phase.BATCH: "content of the batch",
    Phase.RANDOM: "random numbers (their state after the step)",
    Phase.OPTIMIZER: "optimizer state",
    Phase.PARTS: "other saved state",
}


class Verdict(StrEnum):
    """Whether two trainings are the same, as far as they can be compared."""

    IDENTICAL = "identical"
    DIFFERENT = "different"
    INCOMPARABLE = "incomparable"


class Obstacle(StrEnum):
    """Why two series of digests cannot be compared."""

    NO_DIGESTS = "no digests"
    NO_COMMON_STEP = "no common step"
    OTHER_MODEL = "other model"
    SHARDS = "shards"  # and other world sizes
    DAMAGED = "damaged"  # a file was changed while it was read


@dataclass(frozen=True, slots=True)
class PhaseDifference(Described):
    """In what a step differs."""

    phase: Phase
    """Part of the step, in its order: `order`, `batch`, `random`, `forward`, `gradients` and so on."""
    ranks: list[int]
    """Ranks that differ."""
    names: list[str]
    """First tensors or logged values that differ; empty where there is no more than one value."""
    count: int
    """Number of tensors or logged values that differ, on any rank."""


@dataclass(frozen=True, slots=True)
class StepDifference(Described):
    """The first step that differs."""

    step: int
    """Number of the step."""
    epoch: int
    """Epoch of this job in that step."""
    attempt: int
    """Attempt of this job with that step."""
    other_attempt: int
    """Attempt of the other job with that step."""
    world_size: int
    """Number of compared ranks."""
    phases: list[PhaseDifference]
    """Parts of the step that differ, earliest first."""


@dataclass(frozen=True, slots=True)
class StepComparison:
    """``steps``: the common steps that are equal, up to the first that differs. ``partial``: not everything could be
    compared. ``logged``: values that differ at equal steps.
    """

    verdict: Verdict
    obstacle: Obstacle | None = None
    steps: list[int] = field(default_factory=list)
    difference: StepDifference | None = None
    partial: bool = False
    logged: list[str] = field(default_factory=list)

    @property
    def gap(self) -> range:
        """The steps in one of which the difference began; empty where there is none."""
        if self.difference is None:
            return range(0)
        return range(self.steps[-1] + 1 if self.steps else 1, self.difference.step + 1)


def compare_steps(one: DigestSeries, other: DigestSeries) -> StepComparison:
    """Find the first common step that differs, and in what."""
    try:
        return _compare(one, other)
    except ValueError:
        return _incomparable(Obstacle.DAMAGED)


def _compare(one: DigestSeries, other: DigestSeries) -> StepComparison:
    here, there = ([each.step for each in series.steps()] for series in (one, other))
    common = sorted(set(here) & set(there))
    if not common:
        return _incomparable(Obstacle.NO_COMMON_STEP if here and there else Obstacle.NO_DIGESTS)
    mine, its = (_parameters(series.at(common[0])) for series in (one, other))
    if mine and its and not mine & its:
        return _incomparable(Obstacle.OTHER_MODEL)
    scan = _scan(one, other, common)
    scopes = {*scan.scopes.values()}
    if scan.differing is None and scopes == {_OF_SHARDS}:
        return _incomparable(Obstacle.SHARDS)
    noise = _noise(one, other, _spread(scan.equal) if scan.differing is None else scan.equal[-_SAMPLED:])
    difference = None if scan.differing is None else _step_difference(*scan.differing, scan, noise)
    verdict = Verdict.IDENTICAL if difference is None else Verdict.DIFFERENT
    return StepComparison(verdict, None, scan.equal, difference, scopes != {_OF_EQUAL_WORLDS}, sorted(noise))


def _incomparable(obstacle: Obstacle) -> StepComparison:
    return StepComparison(Verdict.INCOMPARABLE, obstacle)


@dataclass(slots=True)
class _Scan:
    """The equal steps before the first that differs, that one, and what could be compared."""

    equal: list[int] = field(default_factory=list)
    differing: tuple[StepDigests, StepDigests] | None = None
    scopes: dict[tuple[int, int], frozenset[Phase]] = field(default_factory=dict)

    def scope(self, one: StepDigests, other: StepDigests) -> frozenset[Phase]:
        """What can be compared of these attempts: with other world sizes only what rank 0 has whole."""
        key = one.attempt, other.attempt
        if key not in self.scopes:
            partial = _OF_SHARDS if one.sharded or other.sharded else _OF_WHOLE_TENSORS
            self.scopes[key] = _OF_EQUAL_WORLDS if one.world_size == other.world_size else partial
        return self.scopes[key]


def _scan(one: DigestSeries, other: DigestSeries, common: Sequence[int]) -> _Scan:
    scan = _Scan()
    for step in common:
        mine, its = one.at(step), other.at(step)
        scope = scan.scope(mine, its) - {Phase.FORWARD}
        if mine.world_size == its.world_size:
            is_equal = mine.state_hashes == its.state_hashes
        else:
            is_equal = mine.shared_hash == its.shared_hash
        if not is_equal and _differing_phases(mine, its, scope):
            scan.differing = mine, its
            break
        scan.equal.append(step)
    return scan


def _step_difference(one: StepDigests, other: StepDigests, scan: _Scan, noise: frozenset[str]) -> StepDifference:
    epoch, ranks = one.rank(0).record.epoch, len(_common_ranks(one, other))
    phases = _differing_phases(one, other, scan.scope(one, other), noise)
    return StepDifference(one.step, epoch, one.attempt, other.attempt, ranks, phases)


def _common_ranks(one: StepDigests, other: StepDigests) -> list[int]:
    """The ranks that are compared: with other world sizes rank 0 alone."""
    return sorted({*one.ranks} & {*other.ranks}) if one.world_size == other.world_size else [0]


def _differing_phases(
    one: StepDigests, other: StepDigests, scope: frozenset[Phase], noise: frozenset[str] = frozenset()
) -> list[PhaseDifference]:
    ranks, names = {phase: list[int]() for phase in Phase}, {phase: dict[str, None]() for phase in Phase}
    for rank in _common_ranks(one, other):
        mine, its = _facts(one.rank(rank)), _facts(other.rank(rank))
        for phase in scope:
            found = _differing(phase, mine[phase], its[phase])
            if phase is Phase.FORWARD:
                found = [name for name in found if name not in noise]
            if found:
                ranks[phase].append(rank)
                names[phase].update(dict.fromkeys(found))
    return [
        PhaseDifference(phase, ranks[phase], [name for name in names[phase] if name][:_MAX_NAMES], len(names[phase]))
        for phase in Phase
        if ranks[phase]
    ]


def _facts(digest: RankDigest) -> dict[Phase, Mapping[str, object]]:
    """What is compared of a rank, by name; "" where it has no name."""
    record = digest.record
    tensors: dict[Phase, Mapping[str, object]] = {
        Phase(kind.value): digest.tensors.get(kind, {}) for kind in TensorKind
    }
    single = {Phase.BATCH: record.batch, Phase.RANDOM: record.random, Phase.PARTS: record.parts}
    return {
        Phase.ORDER: {"": record.order, "samples": tuple(record.samples)},
        **{phase: {} if value is None else {"": value} for phase, value in single.items()},
        Phase.FORWARD: record.logged,
        **tensors,
    }


def _differing(phase: Phase, mine: Mapping[str, object], its: Mapping[str, object]) -> list[str]:
    """Names of what differs; a tensor that only one has does, a value that only one has recorded does not."""
    names = {**mine, **its} if phase.value in list(TensorKind) else mine.keys() & its.keys()
    return [name for name in names if mine.get(name) != its.get(name)]


def _parameters(step: StepDigests) -> set[str]:
    return set(step.rank(0).tensors.get(TensorKind.PARAMETERS, ()))


def _noise(one: DigestSeries, other: DigestSeries, equal: Sequence[int]) -> frozenset[str]:
    """The logged values that differ at steps at which the training is equal."""
    found = set[str]()
    for step in equal:
        mine, its = one.at(step), other.at(step)
        for rank in _common_ranks(mine, its) if mine.world_size == its.world_size else ():
            logged = mine.rank(rank).record.logged, its.rank(rank).record.logged
            found.update(name for name in logged[0].keys() & logged[1].keys() if logged[0][name] != logged[1][name])
    return frozenset(found)


def _spread(steps: Sequence[int]) -> list[int]:
    """Some of the steps at even distances, the last among them."""
    return list(steps[:: -max(1, len(steps) // _SAMPLED)])


# --- sentences


def describe(comparison: StepComparison) -> str:
    """The verdict in a sentence. Precondition: there is no obstacle."""
    steps, difference = comparison.steps, comparison.difference
    if difference is None:
        span = (
            f"step {steps[0]:,}" if len(steps) == 1 else f"{len(steps):,} common steps, {steps[0]:,} to {steps[-1]:,}"
        )
        return f"Identical at {span}." if len(steps) == 1 else f"Identical over {span}."
    before = f"equal up to step {steps[-1]:,}" if steps else "it is the first step with digests of both"
    return f"First difference: step {difference.step:,}, {_phase_text(difference.phases[0], difference)}; {before}."


def _phase_text(found: PhaseDifference, difference: StepDifference) -> str:
    """``gradients of layer2.weight (and 3 more) on rank 1``; the ranks only where there are several."""
    more = found.count - 1
    rest = f" (and {more} more)" if more and found.names else ""
    if found.phase is Phase.FORWARD:
        text = f"logged value {found.names[0]}{rest}"
    else:
        has_tensors = found.phase.value in list(TensorKind) and found.names
        text = _short(found) + (f" of {found.names[0]}{rest}" if has_tensors else "")
    if difference.world_size == 1:
        return text
    if len(found.ranks) == difference.world_size:
        return f"{text} on all ranks"
    return f"{text} on {'rank' if len(found.ranks) == 1 else 'ranks'} {_listed(found.ranks)}"


def _listed(ranks: Sequence[int]) -> str:
    """``0-3, 7``."""
    starts = [ranks[0], *(after for before, after in pairwise(ranks) if after != before + 1)]
    ends = [*(before for before, after in pairwise(ranks) if after != before + 1), ranks[-1]]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def notes(comparison: StepComparison) -> list[str]:
    """What else a person should know of the comparison, each in a sentence."""
    found = []
    difference, gap = comparison.difference, comparison.gap
    if difference is not None and len(difference.phases) > 1:
        found.append(f"Also different at that step: {', '.join(_short(each) for each in difference.phases[1:])}.")
    if len(gap) > 1:
        found.append(f"The difference began in one of the steps {gap[0]:,} to {gap[-1]:,}: only the last has digests.")
    if comparison.partial:
        found.append("Where the world sizes differ, only the order and what rank 0 has whole is compared.")
    if comparison.logged:
        listed = ", ".join(comparison.logged[:_MAX_NAMES])
        found.append(f"Logged values that differ although the training is the same: {listed}.")
    return found


def _short(found: PhaseDifference) -> str:
    return "logged values" if found.phase is Phase.FORWARD else _WORDS.get(found.phase, found.phase.value)
