"""Jobs of a real server whose slots change hands while they run, and what they must have trained in the end."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from e2e.waiting import until
from rekindle.contract.run_dir.journal import AttemptEnded, AttemptStarted, read_journal
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.client import Client

SCRIPT = Path(__file__).parents[1] / "faults" / "scripts" / "resized.py"
STEPS, BATCH, EPOCHS = 60, 8, 2
_WAITS = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
_LONG = 90.0  # seconds


def undisturbed(directory: Path) -> Callable[[], str]:
    """Starts the training on one process, where nothing happens to it; the function waits for its weights."""
    directory.mkdir()
    environment = {**os.environ, "REKINDLE_SNAPSHOT_DIR": str(directory), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), str(STEPS), "0"]
    training = subprocess.Popen(command, env=environment, cwd=directory, stdout=subprocess.PIPE, text=True)
    return lambda: _weights(training.communicate()[0])


class ResizableJob:
    """A training in slow steps, until ``hurry`` is called."""

    def __init__(self, client: Client, home: Path, directory: Path, **options: object) -> None:
        directory.mkdir()
        shutil.copyfile(SCRIPT, directory / "train.py")
        self._client, self._hurry = client, directory / "hurry"
        body = {"script": "train.py", "args": [str(STEPS), "0.4", str(self._hurry)], "code": {"path": str(directory)}}
        self.id = client.submit({**body, "device": "cpu", **options})["id"]
        self._run_dir = RunDir(home / "runs" / self.id)

    def job(self) -> dict[str, object]:
        return dict(self._client.job(self.id))

    def hurry(self) -> None:
        self._hurry.touch()

    def reach(self, world_size: int, attempt: int) -> None:
        """Wait until the attempt, or a later one, trains on ``world_size`` ranks."""
        until(
            lambda: self.world_sizes()[attempt - 1 :][:1] == [world_size] and self.steps()[attempt - 1],
            f"attempt {attempt} trains on {world_size} ranks, and not {self.world_sizes()}",
            _LONG,
        )

    def world_sizes(self) -> list[int]:
        """The world size of each attempt."""
        return [each.world_size for each in read_journal(self._run_dir.journal) if isinstance(each, AttemptStarted)]

    def outcomes(self) -> list[tuple[str, str]]:
        """Class and message of each attempt that has ended."""
        ended = [each.outcome for each in read_journal(self._run_dir.journal) if isinstance(each, AttemptEnded)]
        return [(str(each.klass), each.message) for each in ended if each is not None]

    def steps(self) -> list[list[int]]:
        """The steps that each attempt has finished."""
        logs = [self._log(number) for number in range(1, len(self.world_sizes()) + 1)]
        return [[int(step) for step in re.findall(r"^step (\d+)$", log, re.MULTILINE)] for log in logs]

    def finish(self) -> str:
        """The weights, once it has succeeded."""
        until(lambda: self.job()["state"] in ("succeeded", "failed"), "it has ended", _LONG)
        assert self.job()["state"] == "succeeded", self.job()
        return _weights(self._log(len(self.world_sizes())))

    def samples(self) -> dict[int, Counter[int]]:
        """How often each sample was trained, by epoch."""
        used: dict[int, Counter[int]] = {}
        for line in (self._run_dir.snapshots / "samples.jsonl").read_text().splitlines():
            _, epoch, _, ids = json.loads(line)
            used.setdefault(epoch, Counter()).update(ids)
        return used

    def _log(self, attempt: int) -> str:
        path = self._run_dir.attempt(attempt).rank(0).log("stdout")
        return path.read_text() if path.exists() else ""


EVERY_SAMPLE_ONCE = {epoch: Counter(range(STEPS * BATCH)) for epoch in range(EPOCHS)}
EVERY_STEP = list(range(1, STEPS * EPOCHS + 1))


class Holder:
    """A job of one process that does nothing but hold its slots until ``release`` is called."""

    def __init__(self, client: Client, directory: Path, slots: int, priority: int = 0) -> None:
        directory.mkdir()
        (directory / "train.py").write_text(_WAITS)
        self._client, self._gate = client, directory / "gate"
        body = {"script": "train.py", "args": [str(self._gate)], "code": {"path": str(directory)}, "device": "cpu"}
        size = {"ranks": 1, "devices_per_rank": slots, "launch": "process", "warm": False}
        self.id = client.submit({**body, **size, "priority": priority})["id"]

    def state(self) -> str:
        return self._client.job(self.id)["state"]

    def reach_running(self) -> None:
        until(lambda: self.state() == "running", f"job {self.id} runs", _LONG)

    def release(self) -> None:
        self._gate.touch()
        until(lambda: self.state() == "succeeded", f"job {self.id} has succeeded", _LONG)


def _weights(output: str) -> str:
    return re.findall(r"^weights ([0-9a-f]{64})$", output, re.MULTILINE)[-1]
