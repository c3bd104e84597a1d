"""The process that asks the driver, as the server sees it. Nothing here waits for it."""

import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import IO

from rekindle.contract.nvidia_driver import GpuReading
from rekindle_service.machine.gpu_report import GpuReport

INTERVAL = 2.0  # seconds between two reports
TIMEOUT = 30.0
"""Seconds without a report after which the driver does not answer."""
_RESTART = 10.0  # seconds between two starts of the process

STARTING = "the driver was not yet asked who uses it"


class GpuProbe:
    """Call ``poll`` again and again, from one thread, which the process ends with."""

    def __init__(self, uuids: list[str], interval: float = INTERVAL, timeout: float = TIMEOUT) -> None:
        self._uuids, self._interval, self._timeout = uuids, interval, timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._started = float("-inf")  # seconds of CLOCK_MONOTONIC
        self._lock = threading.Lock()
        self._report: GpuReport | None = None
        self._reported = 0.0  # likewise
        self._xids: list[tuple[str, int]] = []
        self._problem = STARTING

    def watch(self, uuids: list[str]) -> None:
        """Ask for these GPUs from now on."""
        self._uuids = uuids
        if self._process is not None:
            self._process.kill()  # another one starts at the next poll

    def poll(self) -> GpuReport | str:
        """The latest report, with all Xids since the last call, or a sentence that says why there is none."""
        now = time.monotonic()
        with self._lock:
            report, age = self._report, now - self._reported
            xids, self._xids = self._xids, []
        if self._process is None or self._process.poll() is not None:
            self._restart(now)
            if report is None or age > 2 * _RESTART:
                return self._problem
        elif report is None and now - self._started < self._timeout:
            return self._problem
        elif report is None or age > self._timeout:
            return f"the driver has not answered for {self._timeout:.0f} seconds"
        return replace(report, xids=xids) if report is not None else self._problem

    def readings(self) -> dict[str, GpuReading]:
        """By UUID, what is in use of each GPU; nothing where the driver does not answer. Any thread may call it."""
        with self._lock:
            is_known = self._report is not None and time.monotonic() - self._reported < self._timeout
            return self._report.readings if self._report is not None and is_known else {}

    def close(self) -> None:
        """A process that waits for a driver cannot be killed: it ends when that answers."""
        if self._process is not None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)

    def _restart(self, now: float) -> None:
        if now - self._started < _RESTART:
            return
        self._started = now
        command = [sys.executable, "-P", "-m", f"{__package__}.gpu_probe", str(self._interval), *self._uuids]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        except OSError as error:
            self._problem = f"the driver cannot be asked: {error}"
            return
        reader = threading.Thread(target=self._read, args=(self._process.stdout,), name="gpu reports", daemon=True)
        reader.start()

    def _read(self, lines: IO[bytes]) -> None:
        """Reports, and last, where the process could not continue, why."""
        with lines:
            for line in lines:
                try:
                    report = GpuReport.from_json(json.loads(line))
                except (ValueError, TypeError, KeyError):
                    self._problem = f"the driver answers with an error: {line.decode(errors='replace').strip()}"
                    continue
                with self._lock:
                    self._report, self._reported = report, time.monotonic()
                    self._xids += report.xids
