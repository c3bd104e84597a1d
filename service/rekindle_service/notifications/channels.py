"""The channels of notifications: webhooks, whose payload is signed, and commands, which are run without a shell."""

import hashlib
import hmac
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from tempfile import TemporaryFile
from typing import IO
from urllib.parse import urlsplit

import httpx2

from rekindle.contract.environment import EVENT, EVENT_ID, EVENT_JSON, JOB_ID
from rekindle_service.config.notification_targets import NotificationTarget
from rekindle_service.notifications.payload import Payload, chat_message

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_TRANSIENT = (408, 425, 429)  # statuses that ask for a retry
_RETRY_EXIT_CODE = os.EX_TEMPFAIL  # 75, of sysexits.h
_MAX_STDERR = 500  # bytes of its end that are logged


class DeliveryResult(Enum):
    """What to do after a try."""

    DELIVERED = "delivered"
    RETRY = "retry"  # it may succeed later
    REJECTED = "rejected"  # it would be rejected again


@dataclass(frozen=True, slots=True)
class Delivery:
    """``reason`` is for the server's log: it holds no secret."""

    result: DeliveryResult
    reason: str = ""


class Webhook:
    """Precondition: ``target`` has a url. ``deliver`` runs in one thread."""

    def __init__(self, target: NotificationTarget) -> None:
        self._url, self._format = target.url or "", target.format
        self._secret = target.secret.get_secret_value().encode() if target.secret is not None else b""
        self._http = httpx2.Client(
            timeout=target.time_limit,
            follow_redirects=False,  # a signed payload goes to the configured URL and to no other
            trust_env=urlsplit(self._url).hostname not in _LOOPBACK,  # no proxy reaches this machine's loopback
        )

    def deliver(self, payload: Payload) -> Delivery:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "rekindle",
            "Rekindle-Event": payload.type.value,
            "Rekindle-Event-Id": payload.id,
        }
        body = payload.body if self._format == "json" else chat_message(payload, self._format)
        if self._secret:
            headers |= signature(self._secret, body, int(time.time()))
        try:
            with self._http.stream("POST", self._url, content=body, headers=headers) as response:
                return delivery_of(response.status_code)
        except httpx2.HTTPError as error:
            return Delivery(DeliveryResult.RETRY, type(error).__name__)
        except httpx2.InvalidURL:
            return Delivery(DeliveryResult.REJECTED, "its url is not valid")

    def close(self) -> None:
        self._http.close()


def signature(secret: bytes, body: bytes, at: int) -> dict[str, str]:
    """The headers that prove that whoever holds ``secret`` sent ``body`` at that second since the epoch."""
    proof = hmac.new(secret, b"%d." % at + body, hashlib.sha256).hexdigest()
    return {"Rekindle-Timestamp": str(at), "Rekindle-Signature": f"sha256={proof}"}


def delivery_of(status: int) -> Delivery:
    """Whether an HTTP status asks for a retry."""
    if 200 <= status < 300:
        return Delivery(DeliveryResult.DELIVERED)
    if 300 <= status < 400:
        return Delivery(DeliveryResult.REJECTED, f"HTTP {status}: redirects are not followed, name the final address")
    refused = status < 500 and status not in _TRANSIENT
    return Delivery(DeliveryResult.REJECTED if refused else DeliveryResult.RETRY, f"HTTP {status}")


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


def channel_of(target: NotificationTarget) -> Webhook | CommandHook:
    """The channel that serves a table of the settings."""
    return CommandHook(target) if target.url is None else Webhook(target)


def hook_environment(payload: Payload, environment: Mapping[str, str]) -> dict[str, str]:
    """The server's environment without its settings, which include secrets, and with the payload."""
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
