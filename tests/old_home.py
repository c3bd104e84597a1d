"""A home that version 0.1 has left: unpacks ``fixtures/home_0_1``, which ``fixtures/record_home.py`` recorded.

Nothing is imported from rekindle: what version 0.1 has written must not change with the code under test.
"""

import json
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

_RECORDED = Path(__file__).with_name("fixtures") / "home_0_1"
_PYTHON = "@PYTHON@"

JOBS = {
    "faults": "succeeded",
    "recipe": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
    "bundle": "succeeded",
    "rates 1: --lr=0.01": "succeeded",
    "rates 2: --lr=0.05": "succeeded",
    "drained": "queued",
    "waiting": "queued",
    "never started": "queued",
}
"""State of every job by its name, in the order of submission."""


def unpack(into: Path, python: str = sys.executable) -> Path:
    """Put the home into the directory ``into``, which must not exist yet; its jobs run under ``python``."""
    shutil.copytree(_RECORDED / "home", into)
    into.chmod(0o700)
    for spec in into.glob("runs/*/spec.json"):
        spec.write_text(spec.read_text().replace(_PYTHON, python))
    special = json.loads((_RECORDED / "special.json").read_text())
    for name in special["directories"]:
        (into / name).mkdir(parents=True)
    for name in special["empty"]:
        (into / name).touch()
    for name in special["fifos"]:
        os.mkfifo(into / name, 0o600)
    (into / "worker-path").mkdir()
    (into / "worker-path" / "rekindle").symlink_to("/opt/rekindle/worker/rekindle")  # where version 0.1 was installed
    with closing(sqlite3.connect(into / "rekindle.db")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.executescript((_RECORDED / "database.sql").read_text().replace(_PYTHON, python))
    return into


def run_directory(home: Path, name: str) -> Path:
    """The run directory of the job of this name."""
    (found,) = (path.parent for path in home.glob("runs/*/spec.json") if json.loads(path.read_text())["name"] == name)
    return found


def records(run: Path, kind: str) -> list[dict[str, object]]:
    """The records of one type in the journal, as they are stored."""
    lines = (run / "journal.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["type"] == kind]
