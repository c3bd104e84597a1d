"""Which leading keeper owns the job: that of the latest launch, and of its latest restart by Slurm."""

import json
import os
from pathlib import Path
from typing import Any

from rekindle.contract.files import NO_SPACE_ERRNOS, write_json
from rekindle.contract.job import RunIntent
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.leader_records import Leader, LeaderBeat
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper import wall_clock
from rekindle.keeper.buffered_journal import SupersededError, UnwritableError
from rekindle.keeper.cluster.nodes import Nodes

BEAT_INTERVAL = 5.0  # seconds; by its beats the server sees that the leading keeper lives


class LaunchOwner:
    """Of launch ``number``, requeued ``restart`` times so far. No lock shows this: they do not reach everywhere."""

    def __init__(self, run_dir: RunDir, number: int, restart: int) -> None:
        self.number, self.restart = number, restart
        self._run_dir, self._files = run_dir, run_dir.launch(number)
        self._beats = 0
        self.nodes: Nodes | None = None

    @property
    def stamp(self) -> dict[str, Any]:
        return {"launch": self.number}

    def check(self) -> None:
        """Raise SupersededError where another leading keeper has the job now.

        Both files are opened each time: only then does a network file system ask its server for them.
        """
        intent = read_record(self._run_dir.intent, RunIntent)
        if intent is not None and intent.launch > self.number:
            raise SupersededError(f"launch {intent.launch} has taken over from launch {self.number}")
        leader = read_record(self._files.leader, Leader)
        if leader is not None and leader.restart > self.restart:
            raise SupersededError(f"restart {leader.restart} of launch {self.number} has taken over")

    def publish(self, leader: Leader, nodes: Nodes) -> None:
        """Let the nodes' keepers find it. Raises SupersededError, OSError."""
        self.check()
        self.nodes = nodes
        write_json(self._files.leader, leader.to_json())
        wall_clock.follow(self._files.leader)
        self.beat()

    def beat(self) -> None:
        """Show that this keeper lives, if it may. Raises SupersededError, UnwritableError; a full disk costs a beat."""
        self.check()
        self._beats += 1
        nodes = {} if self.nodes is None else self.nodes.report()
        beat = LeaderBeat(self._beats, self.restart, wall_clock.now(), **nodes)
        try:
            write_json(self._files.beat, beat.to_json(), durable=False)
        except OSError as error:
            if error.errno not in NO_SPACE_ERRNOS:
                raise UnwritableError(f"it cannot write {self._files.root}: {error.strerror}") from error


def environment_of(path: Path) -> dict[str, str]:
    """The variables that the server has written for the keepers of a launch. Raises OSError, ValueError."""
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{path} is no JSON object")  # noqa: TRY004  # a value, not a call
    return {str(name): str(text) for name, text in value.items()}


def own_environment(path: Path) -> None:
    """Replace this process's environment by that of the launch, plus what Slurm has set."""
    kept = {name: text for name, text in os.environ.items() if name.startswith("SLURM")}
    kept |= {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES", "TMPDIR") if name in os.environ}
    wanted = environment_of(path)
    for name in os.environ.keys() - wanted.keys() - kept.keys():
        del os.environ[name]
    os.environ.update({**wanted, **kept})
