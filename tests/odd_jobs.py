"""Jobs that are healthy and look odd: none of them may be ended as a hang."""

import itertools
import random
from collections.abc import Callable, Iterator, Mapping

from played_ranks import Join, Program, Report, Work, wait
from rekindle.contract.rank_traces import Frame

_LOADER = "/lib/torch/utils/data/dataloader.py"
_OWN = (Frame("/code/train.py", 30, "search"), Frame("/code/train.py", 7, "main"))

Extra = Callable[[int, int], Iterator[Work | Join | Report]]  # by rank and step


def _nothing(_rank: int, _step: int) -> Program:
    yield from ()


def training(
    rank: int, *, seconds: float = 0.5, transfer: float = 0.05, reports: bool = True, extra: Extra = _nothing,
    buckets: int = 1, shape: str = "[[10]] Float",
) -> Program:  # fmt: skip
    """Steps of ``seconds`` for ever, each with all-reduces of ``buckets`` parts, and what is ``extra`` after it."""
    yield Work(3.0)
    if reports:
        yield Report(phase="train")
    for step in itertools.count(1):
        for _ in range(buckets):
            yield Work(seconds / buckets)
            yield Join(transfer, shape=shape)
        if reports:
            yield Report(step=step)
        yield from extra(rank, step)


def every(steps: int, *doing: Work | Join | Report, ranks: tuple[int, ...] = (0,)) -> Extra:
    """``doing`` after each ``steps``-th step, on ``ranks`` only."""

    def extra(rank: int, step: int) -> Program:
        if step % steps == 0 and rank in ranks:
            yield from doing

    return extra


def _in_phase(name: str, *doing: Work | Join | Report) -> tuple[Work | Join | Report, ...]:
    return Report(phase=name), *doing, Report(phase="train")


def _uneven(rank: int, step: int) -> Program:
    yield Work(random.Random(rank * 1_000_003 + step).expovariate(1.0))


def _slow_hours(_rank: int, step: int) -> Program:
    if step // 2000 % 3 == 2:  # another job uses the network
        yield Join(8.0)


def _exchange(rank: int, _step: int) -> Program:
    yield Join(30.0, "all_to_all", f"[[{rank + 3}]] Float")


def _finishes_early(rank: int) -> Program:
    """Rank 1 has fewer batches; the others continue without it, in a group of their own, over a slow link."""
    for step in range(1, 100):
        yield from (Work(0.5), Join(), Report(step=step, phase="train"))
    for step in itertools.count(100) if rank != 1 else ():
        yield from (Work(1.0), Join(20.0, group="1", members=frozenset({0, 2})), Report(step=step))


def _pipeline(rank: int) -> Program:
    """A stage waits for the one before by send and receive, which are no collectives."""
    yield Report(phase="train")
    for step in itertools.count(1):
        yield wait(rank * 2.0, "/lib/torch/distributed/distributed_c10d.py", "recv")
        yield Work(2.0)
        yield wait((3 - rank) * 2.0, "/lib/torch/distributed/distributed_c10d.py", "recv")
        yield from (Join(0.01), Report(step=step))


def _groups(rank: int) -> Program:
    """Two groups of two: one computes for long now and then, while the other waits."""
    yield Report(phase="train")
    pair = frozenset({0, 1}) if rank < 2 else frozenset({2, 3})
    for step in itertools.count(1):
        yield Work(20.0 if rank < 2 and step % 500 == 0 else 0.3)
        yield from (Join(0.1, group=str(1 + rank // 2), members=pair), Join(0.05), Report(step=step))


def _search(_rank: int) -> Program:
    """Pure Python that allocates nothing for half a minute, in a script that reports nothing."""
    while True:
        yield from (Work(30.0, frames=_OWN, events=0.0), Join(), Report(output=20))


def _prints_seldom(_rank: int) -> Program:
    while True:
        yield from (Work(600.0), Report(output=100))


Programs = Callable[[int], Program]


def _trains(**options: object) -> Programs:
    return lambda rank: training(rank, **options)  # type: ignore[arg-type]


JOBS: Mapping[str, tuple[int, Programs]] = {
    "steady": (2, _trains()),
    "steady, reports nothing": (2, _trains(reports=False)),
    "evaluation on rank 0": (2, _trains(extra=every(2000, Work(200.0)))),
    "evaluation on rank 0, reports nothing": (2, _trains(reports=False, extra=every(2000, Work(600.0)))),
    "evaluation on rank 0, reported": (2, _trains(extra=every(2000, *_in_phase("evaluate", Work(1500.0))))),
    "evaluation on all ranks": (2, _trains(extra=every(2000, Work(200.0), Join(), ranks=(0, 1)))),
    "evaluation by a child process": (2, _trains(extra=every(2000, wait(240.0)))),
    "upload by a child process": (2, _trains(extra=every(1000, wait(280.0)), reports=False)),
    "upload by a thread, polled": (2, _trains(extra=every(1000, wait(200.0, "/code/train.py", "upload")))),
    "compilation on all ranks": (2, _trains(extra=every(3000, Work(90.0), ranks=(0, 1)))),
    "compilation by child processes": (2, _trains(extra=every(3000, wait(200.0, "/lib/concurrent/futures/thread.py")))),
    "a loader that stalls": (2, _trains(extra=every(500, wait(200.0, _LOADER, "_get_data")))),
    "a slow disk": (2, _trains(extra=every(500, wait(200.0, "/code/train.py", "read", "D")))),
    "a save on rank 0, with little processor time": (2, _trains(extra=every(1000, Work(150.0, 0.1, "D")))),
    "a save on rank 0, in C with the GIL": (2, _trains(extra=every(1000, Work(150.0, answers=False)))),
    "uneven batches": (4, _trains(extra=_uneven)),
    "another job holds a lock": (2, _trains(extra=every(1500, wait(250.0, "/code/train.py", "flock")))),
    "a debugger has stopped it": (2, _trains(extra=every(5000, wait(240.0, "/code/train.py", "main", "t")))),
    "garbage collection": (2, _trains(extra=every(700, Work(20.0), ranks=(1,)))),
    "a slow link": (2, _trains(seconds=5.0, transfer=10.0)),
    "a slow link, reports nothing": (2, _trains(seconds=5.0, transfer=10.0, reports=False)),
    "a link that is slow for hours": (3, _trains(extra=_slow_hours)),
    "long steps of many collectives": (2, _trains(seconds=100.0, buckets=40, transfer=0.5)),
    "long steps over a slow link": (2, _trains(seconds=30.0, buckets=10, transfer=6.0)),
    "all_to_all of other shapes over a slow link": (3, _trains(extra=_exchange)),
    "a rank finishes early": (3, _finishes_early),
    "a pipeline": (3, _pipeline),
    "two groups": (4, _groups),
    "searches in pure Python": (2, _search),
    "prints every ten minutes": (1, _prints_seldom),
    "sleeps with the machine": (2, _trains()),
}
