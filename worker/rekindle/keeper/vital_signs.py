"""What can be seen of a rank from outside without disturbing it: is it getting anywhere?"""

from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.debug_socket import collectives
from rekindle.contract.processes import cpu_seconds, process_state
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RankDir
from rekindle.contract.run_dir.rank_records import RankStatus


@dataclass(frozen=True, slots=True)
class Vitals:
    """One look at one rank."""

    rank: int
    step: int | None  # finished steps, where the script reports them
    phase: str | None
    output: int  # bytes written to stdout and stderr
    cpu: float  # seconds of processor time
    collectives: int | None  # last one begun, where torch's recorder answers
    state: str | None  # the kernel's letter: R, S, D, T, Z
    in_all: int = 0  # collectives begun in all its groups together, as far as can be seen
    waits: bool = False  # it stands in one, likewise


def look_at(rank: int, pid: int, folder: RankDir) -> Vitals:
    """Never raises: what cannot be seen is None."""
    status, told = read_record(folder.status, RankStatus), collectives(folder)
    return Vitals(
        rank=rank,
        step=None if status is None else status.step,
        phase=None if status is None else status.phase,
        output=_size(folder.log("stdout")) + _size(folder.log("stderr")),
        cpu=cpu_seconds(pid),
        collectives=None if told is None else told.begun,
        state=process_state(pid),
        in_all=0 if told is None else told.in_all,
        waits=told is not None and told.unfinished,
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
