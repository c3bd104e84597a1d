"""Samples a second of recipe ``ddp`` against a plain PyTorch loop with the same settings, in the same run.

    python tests/bench/recipe_throughput.py --ranks 2 --epochs 12
    python tests/bench/recipe_throughput.py --ranks 1 --model resnet34 --batch-size 16 --epochs 4 --amp bf16

An epoch of each takes turns in the same processes (``scripts/throughput_ranks.py``), so that both see the same
machine. A ratio of 1 means that the recipe costs nothing; the first epoch does not count. Options that are not named
here go to the recipe. The load is the machine's mean number of runnable processes over the last minute.
"""

import argparse
import json
import os
import statistics
from pathlib import Path

from recipe_accuracy import torchrun

RANKS = Path(__file__).parent / "scripts" / "throughput_ranks.py"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--ranks", type=int, default=2)
    chosen, options = parser.parse_known_args()
    epochs = measure(chosen.ranks, options)[1:]
    recipe, plain = ([epoch[name] for epoch in epochs] for name in ("recipe", "plain"))
    ratios = [theirs / ours for ours, theirs in zip(recipe, plain, strict=True)]
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, {len(epochs)} epochs of each")
    print(f"seconds an epoch, median: recipe {statistics.median(recipe):.3f}, plain {statistics.median(plain):.3f}")
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"throughput of the recipe / plain: median {middle:.3f}, quartiles {low:.3f} to {high:.3f}")
    print(f"of all epochs together: {sum(plain) / sum(recipe):.3f}; of the fastest: {min(plain) / min(recipe):.3f}")


def measure(ranks: int, options: list[str]) -> list[dict[str, float]]:
    """Seconds of each epoch, of the recipe and of the plain loop."""
    lines = torchrun(ranks, str(RANKS), *options).splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


if __name__ == "__main__":
    main()
