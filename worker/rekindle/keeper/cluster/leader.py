"""The leading keeper of a launch: which machines it has, how their keepers reach it, and what the server asks of it."""

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rekindle.contract.files import complete_lines
from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.run_dir.control import ControlMessage, parse_message
from rekindle.contract.run_dir.leader_records import Leader
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import open_regular, regular_size
from rekindle.keeper.cluster.cluster_runner import ClusterRunner
from rekindle.keeper.cluster.nodes import Nodes
from rekindle.keeper.cluster.ownership import BEAT_INTERVAL, LaunchOwner
from rekindle.keeper.cluster.starters import Starter
from rekindle.keeper.cluster.time_limit import INTERVAL as LIMIT_INTERVAL
from rekindle.keeper.cluster.time_limit import Limit, TimeLimit, latest_stop_seconds
from rekindle.keeper.environment_info import write_environment_info
from rekindle.keeper.event_loop import EventLoop
from rekindle.keeper.supervisor import Keeper

_REQUESTS_INTERVAL = 1.0  # seconds


class RequestFile:
    """What the server appends to ``requests.jsonl`` from now on: a FIFO does not reach across machines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = regular_size(path)

    def read(self) -> list[ControlMessage]:
        """New messages. The file is opened each time: only then does a network file system ask its server."""
        messages: list[ControlMessage] = []
        with suppress(OSError), open_regular(self._path) as file:
            for offset, line in complete_lines(file, self._offset):
                self._offset = offset
                if (message := parse_message(line)) is not None:
                    messages.append(message)
        return messages


def lead(
    run_dir: RunDir,
    owner: LaunchOwner,
    hosts: Sequence[str],
    address: str,
    starter: Starter,
    ask_limit: Callable[[], Limit | None] = lambda: None,
) -> bool:
    """Run the job on ``hosts`` until it has ended (True), or another launch has to follow.

    ``ask_limit``: see ``TimeLimit``. Raises SupersededError, TooFewNodesError, UnreadableError, UnwritableError and
    OSError.
    """
    events, secret = EventLoop(), secrets.token_hex(32)

    def make_runner(_: RunDir, spec: JobSpec, intent: RunIntent, loop: EventLoop) -> ClusterRunner:
        launch = run_dir.launch(owner.number)
        nodes = Nodes(hosts, starter, address, secret, loop, lambda: intent.host_timeout, launch)
        host = socket.gethostname()
        owner.publish(Leader(address, nodes.port, secret, host, os.getpid(), owner.restart, list(hosts)), nodes)
        return ClusterRunner(run_dir, spec, loop, nodes, owner)

    owner.check()
    keeper = Keeper(run_dir, events, make_runner)
    requests = RequestFile(run_dir.requests)
    limit = TimeLimit(ask_limit, lambda: latest_stop_seconds(run_dir.journal), keeper.leave)
    events.every(LIMIT_INTERVAL, limit.check)
    if owner.nodes is not None:  # at a preemption Slurm sends SIGTERM to them, and none to this keeper
        owner.nodes.on_end = lambda: keeper.leave("Slurm sent SIGTERM to all its nodes.")
    events.every(BEAT_INTERVAL, owner.beat)
    events.every(_REQUESTS_INTERVAL, lambda: events.add(requests.read()))
    if keeper.begin():
        write_environment_info(run_dir, keeper.run)
        keeper.supervise()
    return keeper.is_over


def own_address(hosts: Sequence[str]) -> str:
    """The address of this machine by which the other ``hosts`` are reached; no packet is sent. Raises OSError."""
    others = [host for host in hosts if host.partition(".")[0] != socket.gethostname().partition(".")[0]]
    for host in others:
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
    return "127.0.0.1" if not others else socket.gethostbyname(socket.gethostname())
