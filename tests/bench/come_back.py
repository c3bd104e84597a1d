"""How many runs come back from kills: bare ``torchrun --max-restarts`` against rekindle, in turn, the same script.

    python tests/bench/come_back.py --runs 10 --kills 5

In every run rank 1 is killed with SIGKILL ``--kills`` times, each time after it has finished ten steps of its own. A
run came back when its last step is finished. Downtime is from a kill to the next finished step of rank 1.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from side_by_side import BareRun, Result, ServedRun, Starts, alternate, server

STEPS = 150


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--kills", type=int, default=5)
    options = parser.parse_args()
    args = [f"--steps={STEPS}"]
    with tempfile.TemporaryDirectory(prefix="come-back-") as directory, server(Path(directory) / "home") as client:
        starts: Starts = {
            "torchrun": lambda place: BareRun(place, args, options.kills, {}),
            "rekindle": lambda place: ServedRun(place, args, client),
        }
        results = alternate(starts, Path(directory), options.runs, kills=options.kills, own_steps=10, last=STEPS - 1)
    report(results)


def report(results: dict[str, list[Result]]) -> None:
    for name, runs in results.items():
        downtimes = [each for result in runs for each in result.downtimes]
        back = sum(result.came_back for result in runs)
        print(f"{name:9} came back in {back} of {len(runs)} runs; median downtime {statistics.median(downtimes):.2f} s")


if __name__ == "__main__":
    main()
