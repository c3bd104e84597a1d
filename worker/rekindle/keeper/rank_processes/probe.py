"""What can be observed of a rank from outside without disturbing it: does it make progress?"""

import os
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.processes import cpu_seconds, descendants, process_state
from rekindle.contract.rank_traces import collectives
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RankDir
from rekindle.contract.run_dir.rank_records import RankStatus
from rekindle.contract.safe_open import regular_size


@dataclass(frozen=True, slots=True)
class RankSample:
    """One observation of one rank."""

    rank: int
    step: int | None  # finished steps, where the script reports them
    phase: str | None
    output: int  # bytes written to stdout and stderr
    cpu: float  # seconds of processor time
    collectives: int | None  # last one enqueued, where torch's flight recorder answers
    state: str | None  # the kernel's letter: R, S, D, T, Z
    total_collectives: int = 0  # enqueued in all its process groups together, as far as known
    in_collective: bool = False  # one has not completed, as far as known
    device: str = "cpu"  # kind, as assigned
    is_blind: bool = False  # it may be in a collective on its GPU that nobody knows
    reported_steps: int = 0  # in this attempt
    steps_per_second: float | None = None  # as the script reports it
    in_dead_loop: bool = False  # computes, and does nothing that a computation with a purpose does


def probe(rank: int, pid: int, rank_dir: RankDir, *, alone: bool = False) -> RankSample:
    """Never raises: what cannot be observed is None.

    ``alone``: of a job of one rank, which may leave all work to processes that it has started: their time counts, too.
    """
    tree = (pid, *descendants(pid)) if alone else (pid,)
    status = read_record(rank_dir.status, RankStatus)
    device = "cpu" if status is None else status.device.partition(":")[0]
    recorder = collectives(rank_dir, on_gpu=device == "cuda")
    return RankSample(
        rank=rank,
        step=None if status is None else status.step,
        phase=None if status is None else status.phase,
        output=regular_size(rank_dir.log("stdout")) + regular_size(rank_dir.log("stderr")),
        cpu=sum(cpu_seconds(each, with_children=alone) for each in tree),
        collectives=None if recorder is None else recorder.last_enqueued,
        state=process_state(pid),
        total_collectives=0 if recorder is None else recorder.total_enqueued,
        in_collective=recorder is not None and recorder.in_flight,
        reported_steps=0 if status is None else status.reported_steps,
        steps_per_second=None if status is None else status.steps_per_second,
        device=device,
        is_blind=device == "cuda"
        and not alone
        and (recorder is None or not recorder.knows_gpu or _recorders_are_off()),
    )


def _recorders_are_off() -> bool:
    """By the job's environment, which is the keeper's as well; torch takes the first of the names that is set."""
    sizes = (os.environ.get(name) for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"))
    return next((size for size in sizes if size), None) == "0"


def kernel_call(pid: int) -> str | None:
    """The kernel's function in which the main thread of ``pid`` waits, such as ``futex_do_wait``; "" where it runs."""
    try:
        name = Path(f"/proc/{pid}/task/{pid}/wchan").read_text(errors="replace")
    except OSError:
        return None
    return "" if name == "0" else name[:100]


def main_thread_events(pid: int) -> tuple[int, ...] | None:
    """Page faults, system calls that read or wrote, and voluntary waits of the main thread of ``pid`` so far.

    A thread that computes without any of these for long allocates nothing, reads nothing and talks to no other.
    """
    task = Path(f"/proc/{pid}/task/{pid}")
    try:
        stat = (task / "stat").read_text(errors="replace").rpartition(")")[2].split()
        counters = [*(task / "status").read_text().splitlines(), *(task / "io").read_text().splitlines()]
    except (OSError, ValueError):
        return None
    wanted = ("voluntary_ctxt_switches", "syscr", "syscw")
    values = [int(value) for name, _, value in (line.partition(":") for line in counters) if name in wanted]
    return (int(stat[7]) + int(stat[9]), *values)
