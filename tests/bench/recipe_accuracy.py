"""Every recipe trained in full on the handwritten digits; prints its test accuracy as a row of a Markdown table.

    python tests/bench/recipe_accuracy.py

Each runs under torchrun with its own defaults (20 epochs, batches of 128, seed 0), and stops at nothing.
"""

import os
import re
import subprocess
import sys
import tempfile
import time

RECIPES = {
    "single": 1,
    "dp": 1,
    "ddp": 2,
    "ddp --sync-batchnorm": 2,
    "fsdp": 2,
    "single --model lenet": 1,
    "ddp --model lenet": 2,
    "scratch": 2,
    "single --model transformer": 1,
    "tensor": 2,
    "pipeline": 2,
    "rl": 2,
}
RESULT = re.compile(r"\[rank 0\] (?:test accuracy|epoch \d+ .* mean length) (\d+\.\d+)")


def main() -> None:
    print("| recipe and options | ranks | test accuracy | seconds |\n|---|---|---|---|")
    for recipe, ranks in RECIPES.items():
        began = time.monotonic()
        result = train(recipe.split(), ranks)
        print(f"| `{recipe}` | {ranks} | {result} | {time.monotonic() - began:.0f} |", flush=True)


def train(recipe: list[str], ranks: int) -> str:
    """The last result that rank 0 says; of ``rl`` the mean length of its episodes, in ticks."""
    return RESULT.findall(torchrun(ranks, "-m", f"rekindle.recipes.{recipe[0]}", *recipe[1:]))[-1]


def torchrun(ranks: int, *target: str) -> str:
    """What ``target``, a script or a module with its arguments, prints in an empty directory."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *target]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    with tempfile.TemporaryDirectory() as directory:
        return subprocess.run(
            command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout


if __name__ == "__main__":
    main()
