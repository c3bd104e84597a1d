"""The command `rekindle` as a process, as people run it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

_TIMEOUT = 60  # seconds


def environment(home: Path, **variables: str) -> dict[str, str]:
    """The environment of a shell in which nothing but the home is set, and `python` starts this interpreter."""
    left = ("REKINDLE_", "VIRTUAL_ENV", "CONDA_PREFIX")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left)}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**kept, "PATH": path, "REKINDLE_HOME": str(home), **variables}


def rekindle(
    home: Path,
    *words: str,
    cwd: Path | None = None,
    variables: dict[str, str] | None = None,
    timeout: float = _TIMEOUT,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. A traceback is never right, whatever the test looks for."""
    done = subprocess.run(
        [sys.executable, "-m", "rekindle_service", *words],
        cwd=cwd,
        env=environment(home, **(variables or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done


def state_of(home: Path, job_id: str) -> str:
    return str(json.loads(rekindle(home, "show", job_id, "-o", "json").stdout)["state"])


def heed_interrupts() -> None:
    """Let Ctrl-C work in a new process, even where the tests run in the background of a shell, which ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(home: Path, *words: str, **variables: str) -> "subprocess.Popen[str]":
    """Start a command that does not end by itself; the test ends it."""
    return subprocess.Popen(
        [sys.executable, "-m", "rekindle_service", *words],
        env=environment(home, **variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
