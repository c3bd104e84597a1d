"""Recipes on real ranks, started from a process that has imported them already."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from free_port import free_port
from script_process import ScriptProcess

SCRIPT = Path(__file__).parent / "e2e" / "scripts" / "recipe_ranks.py"


@dataclass(frozen=True)
class Trained:
    """How a launch of a recipe ended: exit code and output of each rank, and the directory with its snapshots."""

    codes: list[int]
    outputs: list[str]
    directory: Path

    @property
    def weights(self) -> str:
        """The digest, on which all ranks must agree."""
        (digest,) = {re.findall(r"weights sha256 ([0-9a-f]{64})", output)[-1] for output in self.outputs}
        return digest

    @property
    def accuracy(self) -> str:
        (accuracy,) = {re.findall(r"test accuracy (\d\.\d{4})", output)[-1] for output in self.outputs}
        return accuracy

    @property
    def snapshots(self) -> list[int]:
        return sorted(int(entry.name) for entry in (self.directory / "snapshots").iterdir() if entry.name.isdecimal())

    def tensors(self) -> list:
        """The trained weights, in the order of the model's layers."""
        from rekindle.training.export import read_model
        from rekindle.training.snapshots.directory import verify

        step = self.snapshots[-1]
        latest = self.directory / "snapshots" / f"{step:012d}"
        return list(read_model(latest, verify(latest, step=step, job_id=None)).values())


class RecipeProcess(ScriptProcess):
    """Answers ``run``, and is idle in between."""

    def __init__(self) -> None:
        super().__init__(SCRIPT)

    def run(self, directory: Path, recipe: str, ranks: int, *args: str, kill: tuple[int, int] | None = None) -> Trained:
        return self.run_module(directory, f"rekindle.recipes.{recipe}", ranks, *args, kill=kill)

    def run_module(
        self, directory: Path, module: str, ranks: int, *args: str, kill: tuple[int, int] | None = None
    ) -> Trained:
        """``module`` may be one of the scripts next to the ranks' own."""
        directory.mkdir(parents=True, exist_ok=True)
        request = {"module": module, "ranks": ranks, "port": free_port(), "args": args, "directory": str(directory)}
        codes = json.loads(self.ask(json.dumps({**request, "kill": kill})))
        return Trained(codes, [(directory / f"rank-{rank}.log").read_text() for rank in range(ranks)], directory)
