"""Kill to next finished step: torchrun's own restart (its shared store switched off) against rekindle, in one run.

    python tests/bench/recovery.py --kills 20 [--delay 20]

Two ranks train ResNet-18 with momentum (a snapshot of about 90 MB every tenth step); rank 1 is killed after every
twelve steps of its own. Rounds of five kills alternate between the tools, so that all see the same machine. With
``--delay`` the script takes that many seconds before its first effect, and more steps, so that standby ranks are there.
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
    parser.add_argument("--delay", type=float, default=0, help="seconds")
    options = parser.parse_args()
    own_steps = 12 if not options.delay else int(12 + 4 * options.delay)
    args = [*ARGS, f"--steps={own_steps * (ROUND + 1)}", f"--delay={options.delay}"]
    if options.delay:
        args.append("--pause=0.5")
    with tempfile.TemporaryDirectory(prefix="recovery-") as directory, server(Path(directory) / "home") as client:
        starts: Starts = {
            "torchrun": lambda place: BareRun(place, args, ROUND, WORKAROUND),
            "rekindle": lambda place: ServedRun(place, args, client),
            "rekindle --standby": lambda place: ServedRun(place, args, client, standby=True),
        }
        compare(starts, Path(directory), options.kills, own_steps)


def compare(starts: Starts, directory: Path, kills: int, own_steps: int = 12) -> None:
    last = own_steps * (ROUND + 1) - 1
    results = alternate(starts, directory, kills // ROUND, kills=ROUND, own_steps=own_steps, last=last)
    medians = {}
    for name, runs in results.items():
        downtimes = [each for result in runs for each in result.downtimes]
        medians[name] = statistics.median(downtimes)
        print(f"{name:18} {len(downtimes)} kills: median {medians[name]:.2f} s, p95 {percentile_95(downtimes):.2f} s")
    for name in list(medians)[1:]:
        print(f"ratio of the medians torchrun / {name}: {medians['torchrun'] / medians[name]:.1f}")


if __name__ == "__main__":
    main()
