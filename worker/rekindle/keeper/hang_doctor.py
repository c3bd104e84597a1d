"""Looks at the ranks once a second: who keeps the others waiting, and when nothing moves any more, who is to blame."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from rekindle.contract.debug_socket import last_collective
from rekindle.contract.run_dir.paths import AttemptDir
from rekindle.contract.safe_open import open_regular
from rekindle.keeper.accusation import Hang, Suspect, accuse
from rekindle.keeper.disk_room import has_room
from rekindle.keeper.facts import RankFacts
from rekindle.keeper.pace import Mark, Pace, Sighting, stragglers_behind
from rekindle.keeper.roster import ask_for_stacks
from rekindle.keeper.stacks import main_stack, place
from rekindle.keeper.stillness import Stillness
from rekindle.keeper.vital_signs import Vitals, look_at

LOOK_EVERY = 1.0  # seconds
ABSENT = 3.0  # seconds by which a look is late only where this process itself was kept from running
_STACK_PATIENCE = 2.0  # seconds for all ranks to leave their stacks; a stopped one never does
_STACK_LIMIT = 20_000  # characters of evidence per rank


class HangDoctor:
    """One per attempt."""

    def __init__(self, attempt_dir: AttemptDir, code: Path, limit: float | None) -> None:
        self._dir, self._code = attempt_dir, code
        self._stillness = Stillness(limit)
        self._pace = Pace()
        self._marks: list[Mark] = []
        self._next_look = time.monotonic() + LOOK_EVERY

    def due_in(self) -> float:
        """Seconds until the next look."""
        return self._next_look - time.monotonic()

    def examine(self, ranks: Iterable[RankFacts], wait: Callable[[float], None]) -> Hang | None:
        """Look at the running ranks if a look is due. ``wait`` lets the keeper go on listening meanwhile."""
        late = -self.due_in()
        if late < 0:
            return None
        if late > ABSENT:
            self._stillness.excuse(late)
        running = [rank for rank in ranks if rank.ended_at is None and not rank.done]
        now, world = time.monotonic(), self._look(running)
        self._next_look = time.monotonic() + LOOK_EVERY
        still = self._stillness.hung(now, list(world.values())) if world else None
        if still is None:
            return None
        if not has_room(self._dir.root):  # then no rank can tell that it goes on
            self._stillness.excuse(still)
            return None
        return self._diagnose(still, running, world, wait)

    def marks(self) -> list[Mark]:
        """Stragglers found or cleared since this was last asked."""
        marks, self._marks = self._marks, []
        return marks

    def _look(self, running: list[RankFacts]) -> dict[int, Vitals]:
        world = {rank.rank: look_at(rank.rank, rank.pid, self._dir.rank(rank.rank)) for rank in running}
        self._note_pace(world)
        return world

    def _note_pace(self, world: dict[int, Vitals]) -> None:
        """Where every rank tells its collectives, ask those that seem to be behind once more."""
        before = {rank: vitals.collectives for rank, vitals in world.items() if vitals.collectives is not None}
        if len(before) < len(world) or len(world) < 2:
            return
        leading = max(before.values())
        again = {rank: last_collective(self._dir.rank(rank)) for rank, begun in before.items() if begun < leading}
        after = {rank: begun for rank, begun in again.items() if begun is not None}
        self._marks += self._pace.see(Sighting(before, stragglers_behind(before, after)))

    def _diagnose(
        self, still: float, running: list[RankFacts], world: dict[int, Vitals], wait: Callable[[float], None]
    ) -> Hang:
        """``world`` is what was seen before the stacks were asked for: the request may wake a sleeper."""
        dumps = self._stacks(running, wait)
        frames = {rank: main_stack(dump) for rank, dump in dumps.items()}
        suspects = [Suspect(world[rank], frames[rank], place(frames[rank], self._code)) for rank in world]
        evidence = {
            "seconds_still": round(still, 1),
            "bound_seconds": round(self._stillness.bound(time.monotonic()), 1),
            "collectives": {str(rank): vitals.collectives for rank, vitals in world.items()},
            "process_states": {str(rank): vitals.state for rank, vitals in world.items()},
            "stacks": {str(rank): dump[-_STACK_LIMIT:] for rank, dump in dumps.items()},
        }
        return Hang(still, accuse(suspects), evidence)

    def _stacks(self, running: list[RankFacts], wait: Callable[[float], None]) -> dict[int, str]:
        """Ask every rank for its stacks and collect what comes."""
        files = {rank.rank: self._dir.rank(rank.rank).stacks for rank in running}
        before = {rank: _size(path) for rank, path in files.items()}
        for rank in running:
            ask_for_stacks(rank)
        deadline = time.monotonic() + _STACK_PATIENCE
        while time.monotonic() < deadline and any(_size(files[rank]) == before[rank] for rank in files):
            wait(0.05)
        wait(0.05)  # a dump is written line by line
        return {rank: _read_from(path, before[rank]) for rank, path in files.items()}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _read_from(path: Path, offset: int) -> str:
    try:
        with open_regular(path) as file:
            file.seek(offset)
            return file.read().decode(errors="replace")
    except OSError:
        return ""
