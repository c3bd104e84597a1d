"""Checks whether a Python interpreter can run a job, once per interpreter, by running it."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rekindle.contract.environment import clean_environment
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.config.home import Home
from rekindle_service.jobs.resources import raise_if_lacking
from rekindle_service.jobs.submission import FieldError
from rekindle_service.launchers.isolation.policy import Isolation
from rekindle_service.launchers.isolation.users import OWN_NAME, UnixUser
from rekindle_service.launchers.local import readable

_SECONDS = 20
_MAX_LINE = 300  # characters
_OLDEST = (3, 11)
_PROBE = """
import importlib.metadata, importlib.util, json, sys
found = importlib.util.find_spec("torch") is not None
print(json.dumps({"python": sys.version_info[:2], "torch": importlib.metadata.version("torch") if found else None}))
"""


class InterpreterCheck:
    """Thread-safe; a result holds until the interpreter's file changes, unless the machine may be to blame for it."""

    def __init__(self, *, isolated: bool = False, unreachable: str | None = None) -> None:
        """``isolated``: an interpreter that a person names is their code, which must not run as the server's user.

        ``unreachable``: see ``unreachable_interpreter``.
        """
        self._isolated, self._unreachable = isolated, unreachable
        self._results: dict[tuple[str, int], FieldError | None] = {}
        self._lock = threading.Lock()

    def __call__(self, python: str) -> FieldError | None:
        """What is wrong with ``python``, or None. Raises OSError where this machine has no room for the check."""
        try:
            modified = Path(python).stat().st_mtime_ns
        except (OSError, ValueError):
            return _error(python, "must be an interpreter that exists", f"such as {sys.executable}")
        if not Path(python).is_absolute() or not os.access(python, os.X_OK):
            return _error(python, "must be the absolute path of an executable file", f"such as {sys.executable}")
        if self._isolated and python != sys.executable:
            return None
        if self._unreachable is not None:
            return _error(python, self._unreachable, UNREACHABLE_ADVICE)
        with self._lock:
            key = (python, modified)
            if key in self._results:
                return self._results[key]
            try:
                return self._results.setdefault(key, _probe(python))
            except _InterruptedError as error:
                return error.finding


UNREACHABLE_ADVICE = (
    "install rekindle where the users of jobs can reach it, such as in /opt, or add the directory of the interpreter "
    "to sandbox_read, and restart the server; or name another one with --python"
)


def unreachable_interpreter(isolation: Isolation, home: Home) -> str | None:
    """Why jobs cannot start the server's interpreter with their rights; None where they can. Raises OSError.

    Tried, since only that shows it. Precondition: ``prepare_worker_path`` was called.
    """
    if not isolation.hides_the_server:
        return None
    names = sorted(set(isolation.users.names.values()) - {OWN_NAME})
    users = [UnixUser.named(name) for name in names] if isolation.users else [None]
    return next((lack for user in users if (lack := _start_isolated(isolation, home, user)) is not None), None)


def _start_isolated(isolation: Isolation, home: Home, user: UnixUser | None) -> str | None:
    with TemporaryDirectory(dir=home.runs, prefix=".new-") as name:
        run_dir = RunDir(Path(name))
        run_dir.code.mkdir(mode=0o700)
        environment = isolation.inherited(clean_environment(os.environ), user)
        environment |= {**isolation.tmp_environment(run_dir, environment), "PYTHONPATH": str(home.worker_path)}
        keeper = [sys.executable, "-c", "import rekindle.contract"]
        command, own, plan = replace(isolation, cgroup=None).launch(keeper, environment, run_dir, user)
        try:
            with readable(plan) as stdin:
                done = subprocess.run(
                    command, stdin=stdin, env=own, capture_output=True, timeout=_SECONDS, check=False, cwd="/"
                )
        except subprocess.TimeoutExpired:
            return None
    if done.returncode == 0:
        return None
    lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
    who = "" if user is None else f" as the user {user.name}"
    where = "" if isolation.sandbox is None else " in the sandbox"
    return f"must start{who}{where}, which it does not: {lines[-1][-_MAX_LINE:]}"


class _InterruptedError(Exception):
    """The interpreter was too slow, or was killed: another time it may answer."""

    def __init__(self, finding: FieldError) -> None:
        self.finding = finding


def ask(python: str, program: str, *options: str) -> Any:
    """The JSON that ``python``, started with ``options``, prints for ``program``.

    Raises OSError, subprocess.SubprocessError and ValueError.
    """
    answer = subprocess.run(
        [python, *options, "-c", program],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=clean_environment(os.environ),
        timeout=_SECONDS,
        check=True,
    )
    return json.loads(answer.stdout)


def _probe(python: str) -> FieldError | None:
    try:
        facts = ask(python, _PROBE, "-I")
        version, torch = tuple(facts["python"]), facts["torch"]
    except subprocess.TimeoutExpired as error:
        finding = _error(python, f"must answer within {_SECONDS} s", "it did not: is it on a slow network disk?")
        raise _InterruptedError(finding) from error
    except (OSError, subprocess.CalledProcessError) as error:
        if isinstance(error, OSError):
            raise_if_lacking(error)
        stderr: Any = getattr(error, "stderr", None) or b""
        finding = _error(python, "must be a working Python", (stderr.decode(errors="replace") or str(error))[-300:])
        if getattr(error, "returncode", 0) < 0:
            raise _InterruptedError(finding) from error
        return finding
    except (ValueError, KeyError, TypeError):
        return _error(python, "must be a Python interpreter", "it runs, but does not answer like one")
    if version < _OLDEST:
        found = ".".join(map(str, version))
        return _error(python, f"must be Python {_OLDEST[0]}.{_OLDEST[1]} or newer", f"it is Python {found}")
    if torch is None:
        return _error(python, "must have torch installed", f"{python} -m pip install torch")
    return None


def _error(python: str, rule: str, hint: str) -> FieldError:
    return FieldError("python", rule, python, hint)
