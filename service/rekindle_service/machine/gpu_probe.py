"""``python -m rekindle_service.machine.gpu_probe SECONDS UUID…``: what the driver says of its GPUs, a line of JSON at
a time.

A process of its own: a driver that hangs keeps this one waiting, which nobody can kill then, and not the server. It
ends with the server.
"""

import ctypes
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pynvml

from rekindle.contract import nvidia_driver
from rekindle.contract.processes import die_with_parent

_KMSG = "/dev/kmsg"
_XID = re.compile(r"NVRM: Xid \(PCI:(?P<bus>[^)]*)\): (?P<number>\d+)")
_LOST = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_FOUND}


def main(interval: float, uuids: list[str]) -> None:
    """Print reports until the reader has gone. Raises NVMLError where the driver cannot be used."""
    die_with_parent(os.getppid())
    pynvml.nvmlInit()
    events, log = _Events(uuids), _KernelLog()
    while True:
        used = zip(uuids, nvidia_driver.read_gpus(uuids), strict=True)
        report = {
            "gpus": {uuid: gpu_state(uuid) for uuid in uuids},
            "xids": [*events.read(), *log.read()],
            "readings": {uuid: asdict(reading) for uuid, reading in used if reading is not None},
        }
        print(json.dumps(report), flush=True)  # noqa: T201  # to the server
        events.wait(interval)


def gpu_state(uuid: str) -> dict[str, Any]:
    """``lost``: why, where the driver has lost the GPU. What it does not report is None. Raises NVMLError."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        compute = _ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        volatile = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        rows = _ask(pynvml.nvmlDeviceGetRemappedRows, handle)
        return {
            "lost": None,
            "used": None if memory is None else int(memory.used),
            "total": None if memory is None else int(memory.total),
            "processes": [[int(each.pid), each.usedGpuMemory] for each in compute],
            "memory_errors": _ask(pynvml.nvmlDeviceGetTotalEccErrors, handle, *volatile),
            "remap_failed": rows is not None and bool(rows[3]),
        }
    except pynvml.NVMLError as error:
        if error.value not in _LOST:
            raise
        return {"lost": str(error)}


def _ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """None where this GPU, or this driver, does not support the call. Raises NVMLError for one that is lost."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _LOST:
            raise
        return None


class _Events:
    """Xids as the driver reports them, where it does."""

    def __init__(self, uuids: list[str]) -> None:
        self._names: dict[int, str] = {}
        self._set = None
        with suppress(pynvml.NVMLError):
            self._set = pynvml.nvmlEventSetCreate()
        for uuid in uuids if self._set is not None else ():
            with suppress(pynvml.NVMLError):  # of a GPU that is lost, or a part of one
                handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._set)
                self._names[_address(handle)] = uuid
        self._found: list[tuple[str, int]] = []

    def wait(self, seconds: float) -> None:
        """Wait for the next event, ``seconds`` at most."""
        if self._set is None:
            time.sleep(seconds)
            return
        try:
            event = pynvml.nvmlEventSetWait_v2(self._set, int(1000 * seconds))
            self._found.append((self._names.get(_address(event.device), ""), int(event.eventData)))
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_TIMEOUT:
                time.sleep(seconds)  # such as of a GPU that is lost: the report says so

    def read(self) -> Iterator[tuple[str, int]]:
        found, self._found = self._found, []
        return iter(found)


class _KernelLog:
    """Xids that the kernel logs from now on, where this user may read its log: by bus id."""

    def __init__(self) -> None:
        self._fd = -1
        with suppress(OSError):
            self._fd = os.open(_KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)

    def read(self) -> Iterator[tuple[str, int]]:
        with suppress(OSError):  # BlockingIOError at the end
            while self._fd >= 0:
                record = os.read(self._fd, 8192).decode(errors="replace")
                yield from ((match["bus"], int(match["number"])) for match in _XID.finditer(record))


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


if __name__ == "__main__":
    try:
        main(float(sys.argv[1]), sys.argv[2:])
    except pynvml.NVMLError as failure:
        sys.exit(str(failure))
    except BrokenPipeError:
        os._exit(0)
