"""Kill to next finished step: torchrun's own restart (its shared store switched off) against rekindle, in one run.

    python tests/bench/recovery.py --kills 20

Two ranks train ResNet-18 with momentum (a snapshot of about 90 MB every tenth step); rank 1 is killed after every
twelve steps of its own. Rounds of five kills alternate between the two, so that both see the same machine.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from side_by_side import BareRun, ServedRun, Starts, alternate, percentile_95, server

ROUND = 5
STEPS = 12 * (ROUND + 1)
ARGS = [f"--steps={STEPS}", "--model=resnet18", "--every=10", "--pause=0"]
WORKAROUND = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recovery-") as directory, server(Path(directory) / "home") as client:
        starts: Starts = {
            "torchrun": lambda place: BareRun(place, ARGS, ROUND, WORKAROUND),
            "rekindle": lambda place: ServedRun(place, ARGS, client),
        }
        compare(starts, Path(directory), options.kills)


def compare(starts: Starts, directory: Path, kills: int) -> None:
    results = alternate(starts, directory, kills // ROUND, kills=ROUND, own_steps=12, last=STEPS - 1)
    medians = {}
    for name, runs in results.items():
        downtimes = [each for result in runs for each in result.downtimes]
        medians[name] = statistics.median(downtimes)
        print(f"{name:9} {len(downtimes)} kills: median {medians[name]:.2f} s, p95 {percentile_95(downtimes):.2f} s")
    print(f"ratio of the medians torchrun / rekindle: {medians['torchrun'] / medians['rekindle']:.1f}")


if __name__ == "__main__":
    main()
