"""Writes down what a script can see of its process, as JSON to the file given as its first argument."""

import atexit
import json
import logging
import multiprocessing
import os
import random
import resource
import signal
import sys
import threading
from pathlib import Path

import calendar  # isort: skip  # a module beside this file, not the standard library's
import worker

if __name__ == "__main__":
    main_module = sys.modules["__main__"]
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    numbers = [number for number in signal.valid_signals() if number < signal.SIGRTMIN]
    handlers = {signal.Signals(number).name: signal.getsignal(number) for number in numbers}
    own = {
        "argv": sys.argv[:1] + sys.argv[2:],
        "path": sys.path,
        "cwd": str(Path.cwd()),
        "environment": dict(os.environ),
        "main": [main_module.__name__, main_module.__file__, main_module.__spec__ is None, "worker" in globals()],
        "sibling": [calendar.NAME, calendar.__file__, worker.NAME],
        "process": [multiprocessing.current_process().name, multiprocessing.parent_process() is None],
        "start_method": multiprocessing.get_start_method(allow_none=True),
        "threads": [threading.active_count(), threading.current_thread() is threading.main_thread()],
        "stdin": [sys.stdin.read(), os.fstat(0).st_rdev],
        "streams": [sys.stdout.encoding, sys.stdout.isatty(), sys.stdout is sys.__stdout__, sys.stdout.line_buffering],
        "odd_text": [sys.stdout.errors, sys.stderr.errors],
        "excepthook": sys.excepthook is sys.__excepthook__,
        "blocked": status["SigBlk"],
        "ignored": int(status["SigIgn"], 16) & 0x7FFFFFFF,  # without those that the C library keeps to itself
        "handlers": {name: getattr(handler, "__name__", str(handler)) for name, handler in handlers.items()},
        "logging": [logging.root.level, len(logging.root.handlers)],
        "limits": [resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_STACK)],
        "umask": status["Umask"],
        "session_leader": os.getsid(0) == os.getpid(),
        "warnings_option": sys.warnoptions,
        "random": random.random(),
        "torch_loaded": "torch" in sys.modules,
    }
    atexit.register(Path(sys.argv[1]).write_text, json.dumps(own))
