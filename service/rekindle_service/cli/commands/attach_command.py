"""`rekindle attach`: this terminal for the debugger that a replay has opened in a rank."""

import codecs
import os
import select
import socket
import stat
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import Replay
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import directory_beneath
from rekindle_service.cli.context import JobArgument, connect, settings_of
from rekindle_service.cli.terminal import ExitCode, note, working
from rekindle_service.client import Client, Job, is_settled
from rekindle_service.client.discovery import is_local
from rekindle_service.config.home import Home
from rekindle_service.sanitize import strip_control

_POLL_INTERVAL = 0.3  # seconds
_SILENT = 2.0  # seconds after which a debugger that shows no prompt is busy


def attach(
    context: typer.Context,
    job: JobArgument,
    rank: Annotated[int | None, Option(min=0, help="Rank of the debugger. (default: the one that has it)")] = None,
) -> None:
    """Connect this terminal to the debugger of a replay (--pdb).

    Commands are those of Python's pdb: `continue` closes the debugger, `quit` makes the replay fail. Ctrl-C and the end
    of the input (Ctrl-D) detach, and the rank waits for the next `attach`.
    """
    home = local_home(context)
    with connect(context) as client:
        if not attach_terminal(client, home, client.find_job(job), rank):
            raise typer.Exit(ExitCode.INTERRUPTED)


def local_home(context: typer.Context) -> Home:
    """The server's home. Raises BadParameter where it is not on this machine."""
    settings = settings_of(context)
    if not is_local(settings):
        where = "on the machine of the server, as its user"
        raise typer.BadParameter(f"a debugger is reached through the server's home: run `rekindle attach JOB` {where}")
    return settings.home_dir


def attach_terminal(client: Client, home: Home, job: Job, rank: int | None = None) -> bool:
    """Wait for the debugger of a replay, and use it until it closes; False where the terminal is detached before.

    Raises BadParameter for a job or a rank without a debugger.
    """
    number, run_dir = job["number"], home.run_dir(job["id"])
    spec = read_record(run_dir.spec, JobSpec)
    replay = None if spec is None else spec.replay
    if replay is None or not replay.pdb:
        raise typer.BadParameter(f"job {number} has no debugger: only `rekindle replay JOB --step N --pdb` opens one")
    if rank not in (None, replay.rank):
        raise typer.BadParameter(f"the debugger of job {number} is in rank {replay.rank}, not in rank {rank}")
    who, path, ended = f"rank {replay.rank} of job {number}", None, True
    try:
        with working(f"Waiting for {who} to reach step {replay.step}"):
            found = _connect(client, run_dir, job["id"], replay)
        if found is None:
            note(f"The debugger of {who} is not open: the job is past step {replay.step}, or has ended.")
            return True
        connection, path = found
        with connection:
            ended = _relay(connection, who)
    except KeyboardInterrupt:
        pass
    if path is not None and not path.is_socket():
        note("The debugger is closed.")
        return True
    if ended:
        note(f"Detached. Attach again: rekindle attach {number}; or end the replay: rekindle cancel {number}")
    else:
        note(f"The connection has ended: {who} no longer runs.")
    return not ended


def _connect(client: Client, run_dir: RunDir, job_id: str, replay: Replay) -> tuple[socket.socket, Path] | None:
    """The connection and its path, once the debugger is open; None where it will not be. Raises BadParameter."""
    while True:
        job, refused = client.job(job_id), False
        path = run_dir.attempt(job["attempt"]).rank(replay.rank or 0).pdb_socket
        try:
            return _open(run_dir.root, path), path
        except PermissionError as error:
            raise typer.BadParameter(f"{path}: {error.strerror}: attach as the user of the job") from error
        except ConnectionRefusedError as error:
            refused = True
            if job["slurm"] is not None:
                (host,) = (each["host"] for each in client.ranks(job_id) if each["rank"] == replay.rank)
                raise typer.BadParameter(
                    f"the rank is on {host}: run `rekindle attach {job['number']}` there"
                ) from error
        except OSError:
            pass  # not yet
        if is_settled(job) or (not refused and (job["step"] or 0) >= replay.step):
            return None
        time.sleep(_POLL_INTERVAL)


def _open(root: Path, path: Path) -> socket.socket:
    """A connection to a socket, not where a link leads that a job has put there. Raises OSError."""
    with directory_beneath(root, path.parent) as directory, socket.socket(socket.AF_UNIX) as connection:
        if not stat.S_ISSOCK(os.stat(path.name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise FileNotFoundError(path)
        # Through /proc: a socket's own path may have 107 bytes at most, a run directory's may be longer.
        connection.connect(f"/proc/self/fd/{directory}/{path.name}")
        return connection.dup()


def _relay(connection: socket.socket, who: str) -> bool:
    """Pass lines and output on until the other side closes; True where the input has ended before."""
    decoder, answered = codecs.getincrementaldecoder("utf-8")("replace"), False
    inputs = [sys.stdin.fileno()]
    while True:
        ready, _, _ = select.select([connection.fileno(), *inputs], [], [], None if answered else _SILENT)
        if not ready:
            note(f"{who} is busy, or has another terminal. Waiting for its prompt; Ctrl-C detaches.")
        answered = answered or not ready or connection.fileno() in ready
        try:
            if connection.fileno() in ready:
                if not (data := connection.recv(1 << 16)):
                    return not inputs
                sys.stdout.write(strip_control(decoder.decode(data)))
                sys.stdout.flush()
            elif ready and (line := os.read(inputs[0], 1 << 16)):
                connection.sendall(line)
            elif ready:
                inputs = []
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            return not inputs
