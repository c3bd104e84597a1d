"""A command that is run for each event, without a shell, with the payload as JSON on its standard input."""

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO

from rekindle.contract.environment import EVENT, EVENT_ID, EVENT_JSON, JOB_ID
from rekindle_service.config.notification_targets import NotificationTarget
from rekindle_service.notifications.payload import Delivery, DeliveryResult, Payload

_RETRY_EXIT_CODE = os.EX_TEMPFAIL  # 75, of sysexits.h
_MAX_STDERR = 500  # bytes of its end that are logged


class CommandHook:
    """Precondition: ``target`` has a command. ``close`` may be called by another thread, and ends a running one."""

    def __init__(self, target: NotificationTarget) -> None:
        self._command = list(target.command or ())
        self._time_limit = target.time_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def deliver(self, payload: Payload) -> Delivery:
        with TemporaryFile() as stderr:
            try:
                self._process = self._start(payload, stderr)
                if self._closed:  # closed during the start
                    self._kill()
                self._process.communicate(payload.body, timeout=self._time_limit)
            except OSError as error:
                return Delivery(DeliveryResult.RETRY, f"it cannot be started: {error.strerror}")
            except subprocess.TimeoutExpired:
                self._kill()
                return Delivery(DeliveryResult.RETRY, f"it took longer than {self._time_limit:g} s and was killed")
            return _delivery(self._process.wait(), stderr)

    def _start(self, payload: Payload, stderr: IO[bytes]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self._command,
            cwd="/",
            env=hook_environment(payload, os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
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


def hook_environment(payload: Payload, environment: Mapping[str, str]) -> dict[str, str]:
    """The server's own, without its settings, among which are secrets, and with the payload."""
    kept = {name: value for name, value in environment.items() if not name.startswith("REKINDLE_")}
    return {
        **kept,
        EVENT: payload.type.value,
        EVENT_ID: payload.id,
        EVENT_JSON: payload.body.decode(),
        JOB_ID: payload.job_id,
    }


def _delivery(exit_code: int, stderr: IO[bytes]) -> Delivery:
    if exit_code == 0:
        return Delivery(DeliveryResult.DELIVERED)
    stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _MAX_STDERR))
    reason = f"exit code {exit_code}: {stderr.read().decode(errors='replace').strip()}"
    return Delivery(
        DeliveryResult.RETRY if exit_code == _RETRY_EXIT_CODE or exit_code < 0 else DeliveryResult.REJECTED, reason
    )
