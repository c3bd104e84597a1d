"""A command that is run for each notice, without a shell, with the notice as JSON on its standard input."""

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO

from rekindle_service.config.notification_targets import NotificationTarget
from rekindle_service.notifications.delivery import Delivery, Verdict
from rekindle_service.notifications.payload import Payload

_TRY_AGAIN = os.EX_TEMPFAIL  # 75, of sysexits.h
_TOLD = 500  # bytes of the end of what it complained


class CommandHook:
    """Precondition: ``target`` has a command. ``close`` may be called by another thread, and ends a running one."""

    def __init__(self, target: NotificationTarget) -> None:
        self._command = list(target.command or ())
        self._time_limit = target.time_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def deliver(self, notice: Payload) -> Delivery:
        with TemporaryFile() as complaint:
            try:
                self._process = self._start(notice, complaint)
                if self._closed:  # in the very moment of the start
                    self._kill()
                self._process.communicate(notice.body, timeout=self._time_limit)
            except OSError as error:
                return Delivery(Verdict.AGAIN, f"it cannot be started: {error.strerror}")
            except subprocess.TimeoutExpired:
                self._kill()
                return Delivery(Verdict.AGAIN, f"it took longer than {self._time_limit:g} s and was killed")
            return _reply(self._process.wait(), complaint)

    def _start(self, notice: Payload, complaint: IO[bytes]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self._command,
            cwd="/",
            env=hook_environment(notice, os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=complaint,
            start_new_session=True,  # so that it can be killed with all that it has started
        )

    def close(self) -> None:
        self._closed = True
        self._kill()

    def _kill(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def hook_environment(notice: Payload, environment: Mapping[str, str]) -> dict[str, str]:
    """The server's own, without its settings, among which are secrets, and with the notice."""
    kept = {name: value for name, value in environment.items() if not name.startswith("REKINDLE_")}
    return {
        **kept,
        "REKINDLE_EVENT": notice.happening.value,
        "REKINDLE_EVENT_ID": notice.id,
        "REKINDLE_EVENT_JSON": notice.body.decode(),
        "REKINDLE_JOB_ID": notice.job_id,
    }


def _reply(exit_code: int, complaint: IO[bytes]) -> Delivery:
    if exit_code == 0:
        return Delivery(Verdict.DELIVERED)
    complaint.seek(max(0, complaint.seek(0, os.SEEK_END) - _TOLD))
    told = f"exit code {exit_code}: {complaint.read().decode(errors='replace').strip()}"
    return Delivery(Verdict.AGAIN if exit_code == _TRY_AGAIN or exit_code < 0 else Verdict.REFUSED, told)
