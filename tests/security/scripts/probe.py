"""Trains for ever with snapshots; rank 0 first tries what an isolated job must not be able to do, and reports it."""

import contextlib
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import torch

from rekindle import Run

HOME = Path(sys.argv[1])
OTHERS = [int(pid) for pid in sys.argv[2].split(",") if pid]
OTHER_RUN = Path(sys.argv[3])
PORT = int(sys.argv[4])


def attempt(action) -> str:
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "allowed"


def names(directory: Path) -> list[str] | None:
    with contextlib.suppress(OSError):
        return sorted(entry.name for entry in directory.iterdir())
    return None


def connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def foreign_processes() -> list[str]:
    """Processes of whoever else, whose memory or environment can be read."""
    own = os.environ["REKINDLE_RUN_DIR"].encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if own not in (entry / "environ").read_bytes() and (entry / "comm").read_text().strip() != "bwrap":
                    found.append(entry.name)
    return found


def first_line(path: str, name: str) -> str:
    return next(line.partition(":")[2].strip() for line in Path(path).read_text().splitlines() if line.startswith(name))


def report() -> dict[str, object]:
    run_dir = Path(os.environ["REKINDLE_RUN_DIR"])
    secrets = [HOME / name for name in ("token", "rekindle.db", "server.json", "rekindle.sock", "server.log")]
    return {
        "uid": os.getuid(),
        "read": {path.name: attempt(path.read_bytes) for path in secrets},
        "list_home": names(HOME),
        "list_runs": names(HOME / "runs"),
        "write_home": attempt((HOME / "evil").touch),
        "write_worker_path": attempt(lambda: (next((HOME / "worker-copy").iterdir()) / "json.py").touch()),
        "write_system": attempt(Path("/usr/local/evil").touch),
        "other_run": {name: attempt((OTHER_RUN / name).read_bytes) for name in ("spec.json", "journal.jsonl")},
        "other_run_write": attempt((OTHER_RUN / "intent.json").unlink),
        "signals": [attempt(lambda pid=pid: os.kill(pid, signal.SIGCONT)) for pid in OTHERS],
        "environments": [attempt(lambda pid=pid: Path(f"/proc/{pid}/environ").read_bytes()) for pid in OTHERS],
        "foreign": foreign_processes(),
        "server": attempt(lambda: socket.create_connection(("127.0.0.1", PORT), 5).close()),
        "socket": attempt(lambda: connect(HOME / "rekindle.sock")),
        "no_new_privs": first_line("/proc/self/status", "NoNewPrivs"),
        "capabilities": first_line("/proc/self/status", "CapEff"),
        "tmp": tempfile.gettempdir(),
        "tmp_writable": attempt(tempfile.TemporaryFile),
        "home_writable": attempt((Path.home() / ".cache-of-job").touch),
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "secrets": {name: os.environ.get(name) for name in ("LITERAL", "FROM_FILE", "FROM_SERVER", "OF_THE_SERVER")},
        "run_dir": attempt((run_dir / "code" / "own").touch),
        "replace_tmp": attempt(lambda: (run_dir / "tmp").rename(run_dir / "another")),
    }


if int(os.environ["RANK"]) == 0:
    Path("report.json").write_text(json.dumps(report()))

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(100_000, 4))
with Run(model=model, optimizer=optimizer) as run:
    for _ in run.epochs(1):
        for (batch,) in run.batches(data, global_batch=2):
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss)
            time.sleep(0.02)
