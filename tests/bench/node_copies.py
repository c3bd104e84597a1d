"""What a snapshot in memory costs on one machine, and with a copy on a neighbour: root only, for mount namespaces.

    python tests/bench/node_copies.py --snapshots 10 --megabytes 170

Two ranks on the CPU, on "one machine", on one "node" of a cluster, and on two nodes, each with a /dev/shm of its own
and gloo over loopback between them; in turns, ``--rounds`` times. ``blocked`` is what training waits, ``written``
until it is committed, ``processor`` the time of both ranks together; the first snapshot of each fills buffers and does
not count. ``restored`` is a restore that finds all it needs; ``after a loss`` one where the head's memory is gone, and
model.pt comes from its neighbour.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from machine_ranks import Machine, MachineRanks
from rekindle.contract.run_dir.paths import RunDir

SCRIPT = str(Path(__file__).parent / "scripts" / "node_copy_ranks.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshots", type=int, default=10)
    parser.add_argument("--megabytes", type=int, default=170)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ranks = MachineRanks()
    found: dict[str, list[dict]] = {}
    for _ in range(options.rounds):
        for mode, machines in (("one machine", 1), ("one node", 1), ("two nodes", 2)):
            found.setdefault(mode, []).extend(measure(ranks, mode, machines, options))
    ranks.kill()
    for mode, answers in found.items():
        report(mode, answers)


def measure(ranks: MachineRanks, mode: str, count: int, options: argparse.Namespace) -> list[dict]:
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        run_dir = RunDir(Path(directory) / "job")
        run_dir.snapshots.mkdir(parents=True)
        machines = [Machine(Path(memory) / str(number)) for number in range(count)]
        for machine in machines:
            machine.memory.mkdir()
        args = (mode, str(options.snapshots), str(options.megabytes))
        ended = ranks.attempt(run_dir, 1, machines, SCRIPT, *args, ranks=2 // count)
        if ended.codes != [0, 0]:
            raise SystemExit("\n".join(ended.outputs))
        answers = ended.answers
        if count == 2:
            machines[0].lose()
            ended = ranks.attempt(run_dir, 2, machines, SCRIPT, mode, "0", "4", ranks=1)
            answers[0]["after a loss"] = ended.answers[0]["restored"]
        shutil.rmtree(memory, ignore_errors=True)
        Path(memory).mkdir()
    return answers


def report(mode: str, answers: list[dict]) -> None:
    first, second = answers[::2], answers[1::2]
    figures = [row for answer in first for row in answer["figures"][1:]]
    blocked, written, _ = (statistics.median(column) for column in zip(*figures, strict=True))
    both = [row[2] for answer in first + second for row in answer["figures"][1:]]
    processor = 2 * statistics.mean(both)
    restored = statistics.median(answer["restored"] for answer in first)
    line = f"{mode:12} blocked {blocked * 1e3:6.1f} ms  written {written * 1e3:6.0f} ms  "
    line += f"processor {processor * 1e3:6.0f} ms  restored {restored * 1e3:6.0f} ms"
    if lost := [answer["after a loss"] for answer in first if "after a loss" in answer]:
        line += f"  after a loss {statistics.median(lost) * 1e3:6.0f} ms"
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
