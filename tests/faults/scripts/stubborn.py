"""Ends as its first argument says; its ranks never speak to each other, so they need no torch."""

import os
import signal
import sys
import time
from pathlib import Path

from rekindle import report
from rekindle.training.reporter import reporter

FOLDER = Path(os.environ["REKINDLE_SNAPSHOT_DIR"])
RANK = int(os.environ["RANK"])


def wait_for_ever():
    print("step 1", flush=True)
    while True:
        time.sleep(0.05)  # a signal that arrives just before a sleep is handled after it


def saves_on_sigterm(*_):
    (FOLDER / f"saved-{RANK}").write_text(os.environ["REKINDLE_ATTEMPT"])
    sys.exit(75)


def saves_slowly(*_):
    while not (FOLDER / "may-save").exists():
        time.sleep(0.01)
    print("saved", flush=True)
    sys.exit(0)


def saves_and_exits_with_0(*_):
    if RANK == 0:
        (FOLDER / "checkpoint").write_text(os.environ["REKINDLE_ATTEMPT"])
    sys.exit(0)


match sys.argv[1]:
    case "raise":
        raise ValueError("always the same")
    case "raise-without-snapshot":
        reporter().update_status(snapshot_policy="every 100 steps", step=3)
        raise ValueError("always the same")
    case "raise-late":
        if os.environ["REKINDLE_ATTEMPT"] != "4":
            time.sleep(1)
            raise ValueError("after a healthy second")
    case "save-and-die":
        for step in range(1, 8):
            (FOLDER / "last.pt").write_text(f"{step} of attempt {os.environ['REKINDLE_ATTEMPT']}")
            report(step=step)
        time.sleep(0.3)  # longer than reports are delayed
        report(step=8)
        os.kill(os.getpid(), signal.SIGKILL)
    case "lose-connection":
        checkpoint = FOLDER / "last.pt"
        first = int(checkpoint.read_text()) + 1 if checkpoint.exists() else 1
        for epoch in range(first, 51):
            if epoch in (5, 40) and epoch > first:
                raise ConnectionResetError(104, "Connection reset by peer")
            checkpoint.write_text(str(epoch))
            report(step=epoch)
            time.sleep(0.02)
    case "remove-itself":
        Path(sys.argv[0]).unlink()
        raise ValueError("what shall the next attempt run?")
    case "raise-another":
        raise [KeyError, IndexError, LookupError][int(os.environ["REKINDLE_ATTEMPT"]) % 3]("another each time")
    case "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        wait_for_ever()
    case "save":
        signal.signal(signal.SIGTERM, saves_on_sigterm)
        wait_for_ever()
    case "save-slowly":
        if RANK == 1:
            signal.signal(signal.SIGTERM, saves_slowly)
        wait_for_ever()
    case "exit-0" if (FOLDER / "may-finish").exists():
        print("saved by attempt", (FOLDER / "checkpoint").read_text())
    case "exit-0":
        signal.signal(signal.SIGTERM, saves_and_exits_with_0)
        wait_for_ever()
    case "wait":
        wait_for_ever()
    case "preempt-once":
        mark = FOLDER / f"preempted-{RANK}"
        if not mark.exists():
            mark.touch()
            sys.exit(75)
