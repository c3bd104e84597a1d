"""Planted failures through `triage` of `rekindle mcp`: is the cause right, and does the answer keep to its bound?

    python tests/bench/triage.py [--only corpus,hidden,mismatches]

Each table of planted failures is one job with an attempt for each of them: those of ``tests/faults/test_corpus.py``,
and the mismatched ranks of ``tests/faults/mismatch.py`` in a script that reports steps and in one that does not. An
agent asks for the triage of every attempt over standard input and output. Needs the extra [mcp].
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent import Agent, over_stdio
from e2e.serve_process import ServeProcess
from faults.faulty_run import SCRIPTS
from faults.mismatch import KINDS, SCRIPT, Verdict, enclosing_function
from faults.test_corpus import CORPUS, HIDDEN, Planted, is_right
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings

_MAX_BYTES = 4096
_KINDS = tuple(kind for kind in KINDS if kind != "run_break")  # which another script does


@dataclass(frozen=True)
class Table:
    """A job whose attempts are the planted failures of these names."""

    name: str
    script: str
    args: tuple[str, ...]
    planted: tuple[Any, ...]
    hang_timeout: float = 5.0


TABLES = {
    "corpus": [Table("corpus", "corpus.py", tuple(each.name for each in CORPUS), tuple(CORPUS), 60.0)],
    "hidden": [Table("hidden", "hidden.py", tuple(each.name for each in HIDDEN), tuple(HIDDEN), 2.0)],
    "mismatches": [
        Table(f"mismatches, {mode}", SCRIPT, (mode, *_KINDS), _KINDS, 2.0 if mode == "reports" else 5.0)
        for mode in ("reports", "plain")
    ],
}


def submit(client: Client, table: Table, directory: Path) -> str:
    code = directory / table.name.replace(", ", "-")
    code.mkdir()
    shutil.copyfile(SCRIPTS / table.script, code / "train.py")
    body = {
        "name": table.name, "script": "train.py", "code": {"path": str(code)}, "args": list(table.args), "ranks": 2,
        "device": "cpu", "hang_timeout": table.hang_timeout, "max_failures": 20, "env": {"OMP_NUM_THREADS": "1"},
    }  # fmt: skip
    return client.submit(body)["id"]


def judged(table: Table, found: dict[str, Any], planted: Any) -> bool:
    """Whether the answer names what was planted."""
    cause, culprit = found["cause"], found.get("culprit", {})
    outcome = {"exception": None, "signal": None, "file": None, "line": None, "rank": None, **culprit}
    outcome |= {
        "class": cause["code"],
        "message": cause["untrusted_message"],
        "evidence": {"stack": "Fatal Python error"},
    }
    if not isinstance(planted, Planted):
        return Verdict(planted, outcome, None).is_right
    if not is_right(planted, outcome):
        return False
    source = (SCRIPTS / table.script).read_text().splitlines()
    return table.name != "hidden" or enclosing_function(source, outcome["line"]) == planted.name


async def rows(agent: Agent, job: str, table: Table) -> list[tuple[bool, int]]:
    """Whether each answer is right, and its bytes."""
    results = []
    for number, planted in enumerate(table.planted, start=1):
        found = await agent.call("triage", job=job, attempt=number)
        right = judged(table, found, planted)
        name = planted.name if isinstance(planted, Planted) else planted
        culprit = found.get("culprit", {})
        place = f"rank {culprit.get('rank')}, line {culprit.get('line')}"
        cells = (table.name, name, found["cause"]["code"], place, agent.bytes, "yes" if right else "NO")
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
        if not right:
            print(f"    {found}", flush=True)
        results.append((right, agent.bytes))
    return results


async def measure(client: Client, home: Path, chosen: list[Table], directory: Path) -> list[tuple[bool, int]]:
    results: list[tuple[bool, int]] = []
    for table in chosen:
        job = submit(client, table, directory)
        state = (await asyncio.to_thread(client.wait, job))["state"]
        attempts = len(client.attempts(job))
        print(f"<!-- {table.name}: {state} after {attempts} attempts -->", flush=True)
        before = client.job(job)
        async with over_stdio(home) as agent:
            results += await rows(agent, job, table)
        assert client.job(job) == before, "a triage changes nothing"
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(TABLES))
    chosen = [table for name in parser.parse_args().only.split(",") for table in TABLES[name]]
    print("| table | planted | cause | culprit | bytes | right |\n" + "|---" * 6 + "|")
    with tempfile.TemporaryDirectory(prefix="triage-") as directory:
        home = Path(directory) / "home"
        home.mkdir(mode=0o700)
        with ServeProcess(home), Client.from_home(Settings(home=home)) as client:
            results = asyncio.run(measure(client, home, chosen, Path(directory)))
    right, largest = sum(each for each, _ in results), max(size for _, size in results)
    print(f"\nright: {right} of {len(results)}; largest answer: {largest} bytes of {_MAX_BYTES}")
    sys.exit(right < 0.95 * len(results) or largest > _MAX_BYTES)


if __name__ == "__main__":
    main()
