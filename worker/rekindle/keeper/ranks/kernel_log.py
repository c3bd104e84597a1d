"""The kernel's log, where this user may read it: who ran out of memory, and which GPU has failed."""

import os
from pathlib import Path

_KMSG = Path("/dev/kmsg")


def kernel_log() -> list[str] | None:
    """Its records, oldest first: ``priority,sequence,microseconds,flags;text``. None where it cannot be read."""
    try:
        fd = os.open(_KMSG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    lines: list[str] = []
    try:
        while True:
            lines.append(os.read(fd, 8192).decode(errors="replace"))
    except BlockingIOError:
        return lines
    except OSError:
        return lines or None
    finally:
        os.close(fd)


def driver_messages(since: float) -> list[str]:
    """What NVIDIA's driver has written since ``since`` (seconds of CLOCK_MONOTONIC, in which the kernel counts too)."""
    found = (record.partition(";") for record in kernel_log() or () if "NVRM:" in record)
    return [text.strip() for head, _, text in found if _seconds(head) >= since]


def _seconds(head: str) -> float:
    fields = head.split(",")
    return int(fields[2]) / 1e6 if len(fields) > 2 and fields[2].isdecimal() else 0.0
