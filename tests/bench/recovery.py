"""Kill to next finished step: torchrun's own restart (its shared store switched off) against rekindle, in one run.

    python tests/bench/recovery.py --kills 20

Two ranks train ResNet-18 with momentum (a snapshot of about 90 MB every tenth step); rank 1 is killed after every
twelve steps of its own. Rounds of five kills alternate between the two, so that both see the same machine.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from side_by_side import BareRun, Result, ServedRun, kill_and_watch, server

ROUND = 5
WORKAROUND = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    steps = 12 * (ROUND + 1)
    args = [f"--steps={steps}", "--model=resnet18", "--every=10", "--pause=0"]
    results: dict[str, list[Result]] = {"torchrun": [], "rekindle": []}
    with tempfile.TemporaryDirectory(prefix="recovery-") as directory, server(Path(directory) / "home") as client:
        for number in range(options.kills // ROUND):
            for name in results:
                place = Path(directory) / f"{name}-{number}"
                place.mkdir()
                bare = name == "torchrun"
                run = BareRun(place, args, ROUND, WORKAROUND) if bare else ServedRun(place, args, client)
                results[name].append(kill_and_watch(run, ROUND, steps - 1, own_steps=12))
                run.close()
                print(name, [round(each, 2) for each in results[name][-1].downtimes], flush=True)
    report(results)


def report(results: dict[str, list[Result]]) -> None:
    medians = {}
    for name, runs in results.items():
        downtimes = sorted(each for result in runs for each in result.downtimes)
        medians[name] = statistics.median(downtimes)
        p95 = downtimes[int(0.95 * (len(downtimes) - 1))]
        print(f"{name:9} {len(downtimes)} kills: median {medians[name]:.2f} s, p95 {p95:.2f} s")
    print(f"ratio of the medians torchrun / rekindle: {medians['torchrun'] / medians['rekindle']:.1f}")


if __name__ == "__main__":
    main()
