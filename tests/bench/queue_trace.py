"""A trace in virtual time: the scheduler's own code, first come first served, and an EASY-backfill reference.

    python tests/bench/queue_trace.py [--jobs 500] [--seeds 5] [--swf LOG --slots 128]

The trace is that of ``simulation.workload.lab_trace``: four people on 8 GPUs. ``--swf`` reads a log of the Parallel
Workloads Archive (https://www.cs.huji.ac.il/labs/parallel/workload/) in its place. Every decision is checked: no slot
twice, the first job never delayed by one that starts before its turn, no slot idle that it could have.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from job_examples import cpu_machine, gpu_machine
from simulation.test_virtual_time import everything
from simulation.virtual_time import Result, Simulation, reference
from simulation.workload import TraceJob, lab_trace, read_swf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--swf", type=Path)
    parser.add_argument("--slots", type=int, default=8)
    chosen = parser.parse_args()
    if chosen.swf is not None:
        with chosen.swf.open(errors="replace") as lines:
            traces = [read_swf(lines, chosen.slots)[: chosen.jobs]]
    else:
        traces = [lab_trace(seed, chosen.jobs) for seed in range(1, chosen.seeds + 1)]
    for title, seeds in (("one trace", traces[:1]), (f"mean of {len(traces)} traces", traces[1:] and traces)):
        if seeds:
            print(f"{len(seeds[0])} jobs on {chosen.slots} slots, {title}; hours, but for % and slowdown")
            show([results(trace, chosen.slots) for trace in seeds])


def results(trace: Sequence[TraceJob], slots: int) -> dict[str, Result]:
    machine = gpu_machine(slots) if slots <= 8 else cpu_machine(slots)
    begun = time.process_time()
    mine = Simulation(trace, machine, check=everything).run()
    print(f"  every decision checked, {time.process_time() - begun:.1f} s of processor time", file=sys.stderr)
    return {
        "first come, first served": reference(trace, slots, backfill=False),
        "EASY backfill (reference)": reference(trace, slots, backfill=True),
        "rekindle without preemption": Simulation(trace, machine, preemption="off").run(),
        "rekindle": mine,
    }


def show(found: Sequence[dict[str, Result]]) -> None:
    columns = list(found[0]["rekindle"].row())
    owners = sorted({each.job.owner for each in found[0]["rekindle"].outcomes})[:4]
    head = [*columns, "urgent", *owners]
    print(f"{'':28}" + "".join(f"{name:>10}" for name in head))
    for policy in found[0]:
        rows = [{**each[policy].row(), **extra(each[policy], owners)} for each in found]
        print(f"{policy:28}" + "".join(f"{fmean(row[name] for row in rows):10.2f}" for name in head))
    print()


def extra(result: Result, owners: Sequence[str]) -> dict[str, float]:
    """Mean waits in hours: of the urgent jobs, and of each owner."""
    urgent = result.waits(lambda job: job.priority > 0)
    means = {owner: fmean(result.waits(lambda job, owner=owner: job.owner == owner)) / 3600 for owner in owners}
    return {"urgent": fmean(urgent) / 3600 if urgent else 0.0, **means}


if __name__ == "__main__":
    main()
