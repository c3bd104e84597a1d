"""Ends as its first argument says; its ranks never speak to each other, so they need no torch."""

import os
import signal
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["REKINDLE_SNAPSHOT_DIR"])
RANK = int(os.environ["RANK"])


def wait_for_ever():
    print("step 1", flush=True)
    while True:
        time.sleep(60)


def saves_when_told(*_):
    (FOLDER / f"saved-{RANK}").write_text(os.environ["REKINDLE_ATTEMPT"])
    sys.exit(75)


def finishes_when_told(*_):
    time.sleep(0.3)
    sys.exit(0)


match sys.argv[1]:
    case "raise":
        raise ValueError("always the same")
    case "raise-another":
        raise [KeyError, IndexError, LookupError][int(os.environ["REKINDLE_ATTEMPT"]) % 3]("another each time")
    case "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        wait_for_ever()
    case "save":
        signal.signal(signal.SIGTERM, saves_when_told)
        wait_for_ever()
    case "finish":
        signal.signal(signal.SIGTERM, finishes_when_told)
        wait_for_ever()
    case "wait":
        wait_for_ever()
    case "preempt-once":
        mark = FOLDER / f"preempted-{RANK}"
        if not mark.exists():
            mark.touch()
            sys.exit(75)
