"""Which rank's collectives differ from the others'? Pure: the flight recorders' histories in, one finding out.

Each rank calls the collectives of a group in the same order, or some wait for ever or fail. Where the orders part, the
majority is right; with no majority the rank is wrong that does what it has not done in this place before.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rekindle.contract.rank_traces import Collective

_MAX_CONTEXT = 300  # collectives before the one in question that are compared


@dataclass(frozen=True, slots=True)
class Deviation:
    """``ranks`` have called ``made``, or (None) nothing any more, where the others have called ``expected``.

    Without ``ranks`` it is not known which of both is wrong.
    """

    ranks: list[int]
    made: Collective | None
    expected: Collective

    @property
    def is_certain(self) -> bool:
        """True where one of both can never complete: different operations with one number in one group.

        The sender of a broadcast may have completed its part. Other shapes alone may do no harm, as [1] and [].
        """
        if self.made is None or (self.made.group, self.made.number) != (self.expected.group, self.expected.number):
            return False
        return self.made.operation != self.expected.operation and not (self.made.completed and self.expected.completed)


def describe(one: Collective) -> str:
    """Describe a collective, as in ``all_reduce number 38 ([[10]] Float)``."""
    group = "" if one.in_default_group else f" of group {one.group}"
    return f"{one.operation} number {one.number}{group}" + (f" ({one.shape})" if one.shape else "")


def find_deviation(histories: Mapping[int, Sequence[Collective]]) -> Deviation | None:
    """The ranks whose collectives part from the others', or None where nothing shows who they are."""
    known = {rank: history for rank, history in histories.items() if history}
    if len(known) < 2:
        return None
    places = {rank: place for rank in known if (place := _first_unmatched(rank, known)) is not None}
    made = {rank: known[rank][place] for rank, place in places.items()}
    kinds = Counter(_kind(each) for each in made.values())
    if len(kinds) == 1:
        lagging = sorted(known.keys() - made.keys())
        return Deviation(lagging, None, made[min(made)]) if lagging else None
    if len(kinds) < 2:
        return None
    (most, count), (_, second) = kinds.most_common(2)
    if count > second:
        wrong = [rank for rank, each in made.items() if _kind(each) != most]
    else:
        groups = {each.group for each in made.values()}
        ends = {rank: _of_groups(known[rank][: place + 1], groups) for rank, place in places.items()}
        familiarity = {rank: _familiarity(history, len(history) - 1) for rank, history in ends.items()}
        least = min(familiarity.values())
        wrong = [rank for rank, each in familiarity.items() if each == least]
    right = [rank for rank in made if rank not in wrong]
    if not right:
        first = made[min(made)]
        return Deviation([], first, next(each for each in made.values() if _kind(each) != _kind(first)))
    return Deviation(sorted(wrong), made[min(wrong)], made[min(right)])


def _of_groups(history: Sequence[Collective], groups: set[str]) -> list[Collective]:
    """The collectives of ``groups``: those of another group may come from another thread, in between anywhere."""
    return [each for each in history if each.group in groups]


def _kind(one: Collective) -> tuple[str, str, str]:
    return one.group, one.operation, one.shape


def _first_unmatched(rank: int, histories: Mapping[int, Sequence[Collective]]) -> int | None:
    """Index of the first collective of ``rank`` that another rank of its group called differently, or not at all."""
    others = [history for number, history in histories.items() if number != rank]
    by_number = [{(each.group, each.number): _kind(each) for each in history} for history in others]
    latest = [{each.group: each.number for each in history} for history in others]
    for index, one in enumerate(histories[rank]):
        for known, last in zip(by_number, latest, strict=True):
            kind = known.get((one.group, one.number), _kind(one))  # the recorder forgets the oldest ones
            member = one.group in last or one.in_default_group
            if kind != _kind(one) or (member and one.number > last.get(one.group, 0)):
                return index
    return None


def is_usual(history: Sequence[Collective]) -> bool:
    """Whether the last collective of ``history`` is the one that has followed on those before it most often."""
    if len(history) < 2:
        return True
    place = len(history) - 1
    alternatives = {_kind(each): each for each in history[:place] if _kind(each) != _kind(history[place])}
    made = _familiarity(history, place)
    return all(_familiarity([*history[:place], other], place) <= made for other in alternatives.values())


def _familiarity(history: Sequence[Collective], place: int) -> tuple[int, int]:
    """How usual the collective at ``place`` is after those before it: the longest context, and how often it was so."""
    kinds = [_kind(each) for each in history[: place + 1]]
    contexts: Counter[int] = Counter()
    for earlier in range(place):
        if kinds[earlier] == kinds[place]:
            length = 0
            while length < min(earlier, _MAX_CONTEXT) and kinds[earlier - 1 - length] == kinds[place - 1 - length]:
                length += 1
            contexts[length] += 1
    length = max(contexts, default=-1)
    return length, contexts[length]
