"""Prints what a process inherits, without what differs from job to job."""

import json
import locale
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

OWN = {"REKINDLE_GENERATION", "REKINDLE_JOB_ID", "WANDB_RUN_ID"}
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
umask = os.umask(0)
os.umask(umask)
opened = []  # by no number: that depends on what other threads have open for a moment, as glibc does files of /sys
for entry in list(Path("/proc/self/fd").iterdir()):
    with suppress(OSError):  # that of the list itself
        opened.append(str(entry.readlink()).partition(":")[0])
state = {
    "environ": {name: value for name, value in sorted(os.environ.items()) if name not in OWN},
    "cwd": str(Path.cwd()),
    "umask": umask,
    "path": sys.path,
    "argv": sys.argv,
    "flags": str(sys.flags),
    "handlers": [str(signal.getsignal(number)).partition(" at ")[0] for number in range(1, 32)],
    "signals": {name: status[name].strip() for name in ("SigBlk", "SigIgn", "SigCgt")},
    "opened": sorted(name for name in opened if not name.startswith("/sys/")),
    "limits": [resource.getrlimit(kind) for kind in range(16)],
    "nice": os.nice(0),
    "streams": [str((each.encoding, each.errors, each.line_buffering)) for each in (sys.stdout, sys.stderr)],
    "tmp": tempfile.gettempdir(),
    "time zone": time.tzname,
    "locale": locale.getlocale(),
    "threads": [str(type(thread)) for thread in threading.enumerate()],
    "filters": len(warnings.filters),
    "session": os.getsid(0) == os.getppid(),
}
print(json.dumps(state))
