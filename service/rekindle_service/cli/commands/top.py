"""`rekindle top`: slots, jobs and ranks, refreshed every second, with keys to sort, filter, open a job and its log."""

import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Self

import typer
from rich.console import Console
from rich.live import Live

from rekindle_service.cli.commands.follow import print_logs
from rekindle_service.cli.commands.top_views import Controls, KeyRequest, View, frame, full_view, job_view, machine_view
from rekindle_service.cli.context import OptionalJobArgument, connect
from rekindle_service.cli.terminal import OutputOption, note, out, print_answer
from rekindle_service.client import Client, LogFilter, NoServerError, ProblemError, ReconnectPolicy

_KEY = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])|.", re.DOTALL)
_NAMES = {
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    **{f"\x1b{prefix}{letter}": name for prefix in "[O" for letter, name in zip("AB", ("up", "down"), strict=True)},
}


def parse_keys(text: str) -> list[str]:
    """``up``, ``down``, ``enter``, ``escape``, ``backspace`` and printable characters; other keys are ignored."""
    keys = (_NAMES.get(key, key) for key in _KEY.findall(text))
    return [key for key in keys if key in _NAMES.values() or (len(key) == 1 and key.isprintable())]


class Keyboard:
    """The keys of standard input while this is entered; none where it is no terminal. Ctrl-C stays a signal."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin.isatty() else None

    def __enter__(self) -> Self:
        if self._fd is not None:
            self._saved = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
        return self

    def __exit__(self, *error: object) -> None:
        if self._fd is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._saved)

    def read(self, timeout: float) -> list[str]:
        """The keys that were pressed; empty after ``timeout`` seconds without one."""
        if self._fd is None:
            time.sleep(timeout)
            return []
        ready, _, _ = select.select([self._fd], [], [], timeout)
        data = os.read(self._fd, 1024) if ready else b""
        if ready and not data:
            self._fd = None  # the terminal is closed
        return parse_keys(data.decode(errors="replace"))

    @contextmanager
    def interrupting(self, *keys: str) -> Iterator[None]:
        """Take each of ``keys`` as Ctrl-C meanwhile."""
        done = threading.Event()

        def watch() -> None:
            while not done.is_set():
                if not set(keys).isdisjoint(self.read(_KEY_INTERVAL)):
                    os.kill(os.getpid(), signal.SIGINT)
                    return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


_INTERVAL = 1.0  # seconds between two polls
_KEY_INTERVAL = 0.2  # seconds after which the end of a log is noticed
_LOG_LINES = 200  # of the latest attempt
_READ_AGAIN = 3600.0  # seconds that the end of a log stays


def top(context: typer.Context, job: OptionalJobArgument = None, output: OutputOption = "table") -> None:
    """Watch slots and jobs, or the ranks of one job, live.

    Keys: arrows select, Enter opens a job, l follows its log, s sorts, / filters, Esc goes back, q or Ctrl-C ends,
    which does not affect the jobs. It continues through a restart of the server. Without a terminal, and with -o json
    or -o id, it prints once and exits.
    """
    with connect(context) as client:
        top_of = None if job is None else client.find_job(job)["id"]
        view = _poll(client, top_of)
        if print_answer(output, view.to_json(), view.ids()):
            return
        if sys.stdout.isatty():
            with Keyboard() as keyboard, suppress(KeyboardInterrupt):
                Screen(client, keyboard, view, top_of).run()
        else:
            out().print(full_view(view))


def _poll(client: Client, job_id: str | None) -> View:
    return machine_view(client) if job_id is None else job_view(client, job_id)


class Screen:
    """The terminal's alternate screen, which is left whatever ends ``run``."""

    def __init__(self, client: Client, keyboard: Keyboard, view: View, job_id: str | None) -> None:
        self._client, self._keyboard, self._view = client, keyboard, view
        self._root = self._shown = job_id  # None: the machine
        self._controls = Controls()
        self._console: Console = out()
        self._warning = ""
        self._policy = ReconnectPolicy(self._on_connection_change)

    def run(self) -> None:
        """Show the screen until a key or Ctrl-C ends it."""
        self._policy.on_success()
        with Live(console=self._console, screen=True, auto_refresh=False) as live:
            next_poll = time.monotonic() + _INTERVAL
            while True:
                self._draw(live)
                for key in self._keyboard.read(max(next_poll - time.monotonic(), 0.0)):
                    rows = [row.id for row in self._view.rows(self._controls)]
                    request = self._controls.press(key, rows)
                    if request is KeyRequest.QUIT:
                        return
                    self._act(request, rows, live)
                if time.monotonic() >= next_poll:
                    self._refresh()
                    next_poll = time.monotonic() + _INTERVAL

    def _draw(self, live: Live) -> None:
        live.update(frame(self._view, self._controls, self._warning, *self._console.size), refresh=True)

    def _act(self, request: KeyRequest | None, rows: list[str], live: Live) -> None:
        selected = rows[self._controls.position(rows)] if rows else None
        match request:
            case KeyRequest.OPEN if self._shown is None and selected is not None:
                self._show(selected, None)
            case KeyRequest.BACK if self._shown != self._root:
                self._show(None, self._shown)
            case KeyRequest.LOG if self._shown is not None:
                self._follow_log(live, self._shown, None if selected is None else int(selected))
            case KeyRequest.LOG if selected is not None:
                self._follow_log(live, selected, None)

    def _show(self, job_id: str | None, selected: str | None) -> None:
        self._shown, self._controls.selected = job_id, selected
        self._refresh()

    def _refresh(self) -> None:
        """Request the view again; it stays while the server is unreachable, and a deleted job is left."""
        try:
            self._view = _poll(self._client, self._shown)
        except (NoServerError, ProblemError) as error:
            is_gone = isinstance(error, ProblemError) and error.problem.get("status") == 404
            if is_gone and self._shown != self._root:
                self._shown = self._root
            else:
                self._policy.on_error(error)
        else:
            self._policy.on_success()

    def _follow_log(self, live: Live, job_id: str, rank: int | None) -> None:
        """Show the log on the ordinary screen until q, Esc or Ctrl-C, or a key after its end."""
        live.stop()
        of_rank = "all ranks" if rank is None else f"rank {rank}"
        try:
            with self._keyboard.interrupting("q", "escape"):
                note(f"── Output of {of_rank}; q, Esc or Ctrl-C returns ──")
                print_logs(self._client, job_id, LogFilter(rank, tail=_LOG_LINES))
            note("── The job has ended; any key returns ──")
            self._keyboard.read(_READ_AGAIN)
        except KeyboardInterrupt:
            pass
        except (NoServerError, ProblemError) as error:
            self._policy.on_error(error)
        finally:
            live.start(refresh=True)

    def _on_connection_change(self, reachable: bool, why: str) -> None:
        trouble = f"Since {datetime.now():%H:%M:%S}: {why or 'Server unreachable'}; jobs keep running; retrying."
        self._warning = "" if reachable else trouble
