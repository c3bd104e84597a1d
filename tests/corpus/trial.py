"""One shape as a job: interrupted in given ways, and what became of it, read from the script's own output."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cli_process import rekindle
from corpus.shapes import Shape
from e2e.serve_process import ServeProcess
from e2e.served_job import ServedJob
from e2e.waiting import load_factor
from free_port import free_port
from rekindle.contract.processes import parent_of
from rekindle_service.client import Client, ProblemError, is_settled
from rekindle_service.config.settings import Settings

OVER = ("succeeded", "failed", "cancelled")
_TIMEOUT = 60.0  # seconds without an expected line, on an idle machine
_MAX_LOAD = 3.0  # a script that hangs must not hold up the table for ever


class SubmitError(Exception):
    """The job was refused; the text is the reason."""


@dataclass
class Interruption:
    """``before`` and ``after``: the last epoch or step that was printed before it, and the first one after it.

    ``replayed``: how many epochs or steps were printed again. ``state`` is that of the job once the fault has acted.
    """

    kind: str
    state: str
    reason: str = ""
    before: float | None = None
    after: float | None = None
    replayed: int = 0


@dataclass
class Trial:
    """One job from submit to end."""

    state: str
    reason: str  # of its state, where it has not succeeded
    last: str | None  # epoch or step that was printed last, with its loss
    interruptions: list[Interruption] = field(default_factory=list)
    missing: str = ""  # what it should have printed


class Lab:
    """A server, and what is needed to submit shapes to it and to interrupt them."""

    def __init__(self, server: ServeProcess, client: Client, outside: Path) -> None:
        self._server, self._client, self._outside = server, client, outside

    def run(self, shape: Shape, kinds: Sequence[str] = ()) -> Trial:
        """Submit the shape, interrupt it in these ways in turn, and wait for its end. Raises SubmitError."""
        job = self._submit(shape)
        output = Output(job, shape)
        done: list[Interruption] = []
        try:
            for kind in kinds:
                if not self._await_lines(job, output, shape.before_fault):
                    break
                done.append(self._interrupt(job, output, kind))
            state = self._settled(job, output)
            missing = output.lacks(shape.must_print)
            return Trial(state, self._reason(job), output.last(), done, missing)
        finally:
            self._end(job)

    # --- submit and end

    def _submit(self, shape: Shape) -> ServedJob:
        outside = self._outside / str(time.monotonic_ns())
        words = shape.words(outside, free_port())
        home = self._server.home
        done = rekindle(
            home, "submit", "-o", "id", "--device", "cpu", *words, cwd=shape.code, timeout=_TIMEOUT * _MAX_LOAD
        )
        if done.returncode:
            raise SubmitError(_refusal(done.stderr))
        return ServedJob(self._client, home, {"ranks": shape.ranks}, done.stdout.strip())

    def _settled(self, job: ServedJob, output: "Output") -> str:
        """The state in which it has ended; `hangs` where it prints nothing for long."""
        size = -1
        while size != (size := output.size()):
            moved = partial(lambda size: is_settled(self._client.job(job.id)) or output.size() != size, size)
            if _await(moved, _TIMEOUT) and is_settled(self._client.job(job.id)):
                return job.state()
        return "hangs"

    def _end(self, job: ServedJob) -> None:
        if job.state() not in OVER:
            self._client.cancel(job.id)
            _await(lambda: job.state() in OVER, _TIMEOUT)

    def _reason(self, job: ServedJob) -> str:
        shown: dict[str, Any] = self._client.job(job.id)
        outcome = shown["outcome"] or {}
        return f"{outcome['class']}: {outcome['message']}" if outcome.get("class") not in (None, "success") else ""

    # --- interruptions

    def _await_lines(self, job: ServedJob, output: "Output", count: int) -> bool:
        """Wait until the current attempt has printed ``count`` epochs or steps; False where that never comes."""
        reached = _await(
            lambda: job.state() in OVER or len(set(output.positions(job.attempt()))) >= count,
            _TIMEOUT,
        )
        return reached and job.state() not in OVER

    def _interrupt(self, job: ServedJob, output: "Output", kind: str) -> Interruption:
        attempt = job.attempt()
        if kind == "server":
            return self._kill_server(job, output, attempt)
        if kind == "drain":
            done = self._drain(job)
        else:
            done = Interruption(kind, "running")
            self._kill(job, kind)
        _await(lambda: job.state() in OVER or output.after(attempt), _TIMEOUT)
        after = output.after(attempt)
        if kind != "drain":
            done.state = "running" if after else job.state()
            done.reason = "" if after else self._reason(job)
        elif not after and done.state not in OVER and job.state() in OVER:
            done.reason = f"then {job.state()}: {self._reason(job)}"
        return _compared(done, output.positions(attempt), after)

    def _kill(self, job: ServedJob, kind: str) -> None:
        match kind:
            case "rank":
                job.kill_rank(max(job.pids()))
            case "agent" if parent_of(job.pids()[0]) == job.keeper().pid:  # which is no agent
                job.kill_rank(0)
            case "agent":
                job.kill_agent()
            case "keeper":
                job.kill_keeper()

    def _kill_server(self, job: ServedJob, output: "Output", attempt: int) -> Interruption:
        """The ranks must train on meanwhile, and the next server must find the same attempt."""
        pids, before = job.pids(), output.positions(attempt)[-1]
        self._server.kill()
        trained_on = _await(lambda: output.positions(attempt)[-1] != before, _TIMEOUT)
        self._server.start()
        unaware = trained_on and job.attempt() == attempt and job.pids() == pids
        state = "running" if unaware else job.state()
        return Interruption("server", state, "" if unaware else self._reason(job), before, before)

    def _drain(self, job: ServedJob) -> Interruption:
        """Drain, and resume as soon as the job has left its slots."""
        self._client.drain(job.id)
        _await(lambda: is_settled(self._client.job(job.id)), 2 * _TIMEOUT)
        state, reason = job.state(), self._reason(job)
        try:
            self._client.resume(job.id)
        except ProblemError as error:
            reason = f"resume refused: {error}"
        return Interruption("drain", state, reason)


class Output:
    """What rank 0 of a job has printed about its epochs or steps, by attempt."""

    def __init__(self, job: ServedJob, shape: Shape) -> None:
        self._job, self._pattern = job, re.compile(shape.position)

    def text(self, attempt: int) -> str:
        rank = self._job.run_dir.attempt(attempt).rank(0)
        logs = [rank.log(stream) for stream in ("stdout", "stderr")]
        return "\n".join(log.read_text(errors="replace") for log in logs if log.exists())

    def size(self) -> int:
        return sum(len(self.text(number)) for number in range(1, self._job.attempt() + 1))

    def positions(self, attempt: int) -> list[float]:
        return [float(found["at"]) for found in self._pattern.finditer(self.text(attempt))]

    def after(self, attempt: int) -> list[float]:
        """The positions of the first later attempt that has printed any."""
        later = (self.positions(number) for number in range(attempt + 1, self._job.attempt() + 1))
        return next(filter(None, later), [])

    def last(self) -> str | None:
        """The last position with its loss."""
        found = list(self._pattern.finditer(self.text(self._job.attempt())))
        return f"{found[-1]['at']}: {found[-1]['loss']}" if found else None

    def lacks(self, sentence: str) -> str:
        return "" if sentence in self.text(1) else sentence


def _refusal(stderr: str) -> str:
    """What is in the box that the command line draws around an error, else the last line."""
    inside = re.findall(r"(?m)^│ (.*?) *│$", stderr) or stderr.splitlines()[-1:]
    return " ".join(inside)


def _compared(done: Interruption, before: list[float], after: list[float]) -> Interruption:
    done.before = before[-1] if before else None
    if after:
        done.after = after[0]
        done.replayed = len({position for position in before if position >= after[0]})
    return done


def _await(condition: Callable[[], Any], timeout: float) -> bool:
    """Whether the condition came true within ``timeout`` seconds, or as many times more as the machine is busy."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout * min(load_factor(), _MAX_LOAD):
            return False
        time.sleep(0.05)
    return True


@contextmanager
def lab(directory: Path) -> Iterator[Lab]:
    """A lab whose server has its home in ``directory``."""
    home = directory / "home"
    home.mkdir(mode=0o700, parents=True)
    with ServeProcess(home) as server, Client.from_home(Settings(home=home)) as client:
        yield Lab(server, client, directory / "outside")
