"""What the server finds out about the interpreter of a job, by running it.

Whether it can run a job at all, and which packages it imports from directories of their own (`pip install -e`), past
the copy of the code.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rekindle.contract.environment import clean_environment
from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import TargetKind
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.config.home import Home
from rekindle_service.launch.isolation.job_isolation import OWN_NAME, Isolation, UnixUser
from rekindle_service.launch.local.local_launcher import readable
from rekindle_service.submission import FieldError, raise_if_lacking

_SECONDS = 20
_MAX_LINE = 300  # characters
OLDEST_PYTHON, OLDEST_TORCH = (3, 11), (2, 11)
_PROBE = """
import importlib.util, json, os, runpy, sys
torch = importlib.util.find_spec("torch")
if torch is not None and torch.origin is not None:  # its version is in a file of its own: torch takes seconds to import
    torch = runpy.run_path(os.path.join(os.path.dirname(torch.origin), "version.py"))
else:
    torch = {}
print(json.dumps({"python": sys.version_info[:3], "torch": torch.get("__version__"), "cuda": torch.get("cuda")}))
"""


@dataclass(frozen=True, slots=True)
class InterpreterVersions:
    """What an interpreter has; ``cuda``: what its torch is built for."""

    python: str
    torch: str | None
    cuda: str | None

    def __str__(self) -> str:
        if self.torch is None:
            return f"Python {self.python}, no torch"
        return f"Python {self.python}, torch {self.torch}, {f'CUDA {self.cuda}' if self.cuda else 'CPU only'}"


def version_numbers(text: str) -> tuple[int, ...]:
    """``2.15.0+cu130`` → ``(2, 15, 0)``."""
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3])


class InterpreterCheck:
    """Thread-safe; a result holds until the interpreter's file changes, unless the machine may be to blame for it."""

    def __init__(
        self,
        *,
        isolated: bool = False,
        unreachable: str | None = None,
        hidden: Callable[[Path], bool] = lambda _: False,
        configured: str | None = None,
    ) -> None:
        """``isolated``: an interpreter that a person names is their code, which must not run as the server's user.

        ``unreachable``: see ``unreachable_interpreter``; ``hidden``: whether the sandbox of jobs hides a path;
        ``configured``: the setting ``python``.
        """
        self._isolated, self._unreachable = isolated, unreachable
        self._hidden, self._configured = hidden, configured
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
            if self._hidden(Path(python)) or self._hidden(Path(os.path.realpath(python))):
                return _error(python, "must be visible in the sandbox of jobs", "add its directory to sandbox_read")
            return None
        if self._unreachable is not None:
            return _error(python, self._unreachable, UNREACHABLE_ADVICE)
        key = (python, modified)
        if key in self._results:  # without the lock: a slow interpreter delays no one who names another
            return self._results[key]
        with self._lock:
            if key not in self._results:
                try:
                    self._results[key] = _probe(python)
                except _InterruptedError as error:
                    return error.finding
        return self._results[key]

    def default(self) -> str:
        """The interpreter of jobs that name none: that of the setting, where it can run jobs, else the server's own."""
        if self._configured is not None and self(self._configured) is None:
            return self._configured
        return sys.executable

    def errors(self, python: str) -> list[FieldError]:
        """What is wrong with ``python``; for the server's own, first what is wrong with that of the setting."""
        tried = [self._configured] if self._configured is not None and python == sys.executable else []
        found = [self(each) for each in (*tried, python)]
        return [] if found[-1] is None else [error for error in found if error is not None]


UNREACHABLE_ADVICE = (
    "install rekindle where the users of jobs can reach it, such as in /opt, or add the directory of the interpreter "
    "to sandbox_read, and restart the server; or name another one with --python"
)


def unreachable_interpreter(isolation: Isolation, home: Home, worker_path: Path) -> str | None:
    """Why jobs cannot start the server's interpreter with their rights; None where they can. Raises OSError.

    Tried, since only that shows it.
    """
    if not isolation.hides_the_server:
        return None
    names = sorted(set(isolation.users.names.values()) - {OWN_NAME})
    users = [UnixUser.named(name) for name in names] if isolation.users else [None]
    return next(
        (lack for user in users if (lack := _start_isolated(isolation, home, worker_path, user)) is not None), None
    )


def _start_isolated(isolation: Isolation, home: Home, worker_path: Path, user: UnixUser | None) -> str | None:
    with TemporaryDirectory(dir=home.runs, prefix=".new-") as name:
        run_dir = RunDir(Path(name))
        run_dir.code.mkdir(mode=0o700)
        environment = isolation.inherited(clean_environment(os.environ), user)
        environment |= {**isolation.tmp_environment(run_dir, environment), "PYTHONPATH": str(worker_path)}
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
        found = read_versions(python)
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
    if version_numbers(found.python) < OLDEST_PYTHON:
        return _error(python, f"must be Python {_text(OLDEST_PYTHON)} or newer", f"it is Python {found.python}")
    if found.torch is None or version_numbers(found.torch) < OLDEST_TORCH:
        lack = "it has none" if found.torch is None else f"it has {found.torch}"
        hint = f'{lack}; {python} -m pip install "torch>={_text(OLDEST_TORCH)}", or name another with --python'
        return _error(python, f"must have torch {_text(OLDEST_TORCH)} or newer", hint)
    return None


def read_versions(python: str) -> InterpreterVersions:
    """Ask ``python`` for its versions. Raises what ``ask`` raises, KeyError and TypeError."""
    facts = ask(python, _PROBE, "-I")
    return InterpreterVersions(_text(facts["python"]), facts["torch"], facts["cuda"])


def _text(version: Iterable[int]) -> str:
    return ".".join(map(str, version))


def _error(python: str, rule: str, hint: str) -> FieldError:
    kind = "the server's own: " if python == sys.executable else ""
    return FieldError("python", rule, python, kind + hint)


_MAX_FILES = 2000  # of Python, in which imports are looked for
_MAX_BYTES = 1 << 20  # of one Python file that is searched
_OWN = {"rekindle", "rekindle_service"}  # the server gives every job its own
_SOURCE_DIRECTORIES = (".", "src", "lib", "python")


@dataclass(frozen=True, slots=True)
class EditableModule:
    """``path`` is the package's directory or the module's file, outside of any environment."""

    name: str
    path: Path


def bypass_warnings(
    spec: JobSpec, code: Path, modules: Sequence[EditableModule], sources: Iterable[bytes] | None = None
) -> list[str]:
    """A sentence for each module that the code imports, but not from ``code``, the copy or what will be copied.

    ``sources``: its Python files; by default all that are in ``code``.
    """
    sources = _python_sources(code) if sources is None else sources
    imported = _imported_names(sources, {module.name for module in modules} - _OWN)
    before = _directories_before(spec, code)
    return [
        _warning(module, code)
        for module in modules
        if module.name in imported and not any(_has(directory, module.name) for directory in before)
    ]


def _directories_before(spec: JobSpec, code: Path) -> list[Path]:
    """What comes before the environment's packages on ``sys.path``."""
    first = (code / spec.target).parent if spec.kind is TargetKind.SCRIPT else code
    path = spec.env.get("PYTHONPATH", "")
    return [first, *(code / each for each in path.split(os.pathsep) if each)]


def _has(directory: Path, name: str) -> bool:
    return (directory / name).is_dir() or (directory / f"{name}.py").is_file()


def _imported_names(sources: Iterable[bytes], names: set[str]) -> set[str]:
    pattern = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
    wanted = {name.encode() for name in names}
    found: set[bytes] = set()
    for source in sources:
        found |= wanted.intersection(pattern.findall(source))
    return {name.decode() for name in found}


def _python_sources(code: Path) -> Iterator[bytes]:
    count = 0
    for directory, _, names in os.walk(code):
        for name in names:
            path = Path(directory, name)
            if name.endswith(".py") and path.is_file() and not path.is_symlink():
                yield path.read_bytes()[:_MAX_BYTES]
                count += 1
                if count == _MAX_FILES:
                    return


def _warning(module: EditableModule, code: Path) -> str:
    inside = next((each for each in _SOURCE_DIRECTORIES if _has(code / each, module.name)), None)
    installed = f"{module.name} is installed in editable mode, so the job imports it from {module.path}"
    if inside is None:
        return f"{installed}: later edits there affect the job. To prevent it, install {module.name} without -e"
    fix = f"--env PYTHONPATH={inside}"
    return f"{installed}, not from the copied code: later edits affect the job. To import the copy, submit with {fix}"


_EDITABLE_PROBE = """
import json, os, site, sys, sysconfig
standard = {os.path.realpath(each) for each in [
    *sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages(),
    os.path.join(sysconfig.get_paths()["stdlib"], "lib-dynload")]}
found = {}
for root in sys.path:
    if root and os.path.isdir(root) and os.path.realpath(root) not in standard:
        names = os.listdir(root)
        if any(name.endswith(".dist-info") for name in names):
            continue
        for name in names:
            path = os.path.join(root, name)
            if name.endswith(".py") or os.path.isfile(os.path.join(path, "__init__.py")):
                found.setdefault(name.removesuffix(".py"), path)
for name, module in list(sys.modules.items()):
    if name.startswith("__editable__"):
        found.update(getattr(module, "MAPPING", {}))
print(json.dumps(found))
"""


class EditableModules:
    """``editable_modules``, once per interpreter until a package is installed there."""

    def __init__(self, *, isolated: bool = False) -> None:
        """``isolated``: as of ``InterpreterCheck``."""
        self._isolated = isolated
        self._known: dict[tuple[str, tuple[int, ...]], list[EditableModule]] = {}

    def __call__(self, python: str) -> list[EditableModule]:
        if self._isolated and python != sys.executable:
            return []
        packages = Path(python).parent.parent.glob("lib/python*/site-packages")
        key = (python, tuple(each.stat().st_mtime_ns for each in packages))
        if key not in self._known:
            self._known[key] = editable_modules(python)
        return self._known[key]


def editable_modules(python: str) -> list[EditableModule]:
    """Empty where the interpreter does not answer: whether it can run a job is checked elsewhere."""
    try:
        found = ask(python, _EDITABLE_PROBE, "-P")
        return [EditableModule(str(name), Path(path)) for name, path in found.items()]
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, AttributeError):
        return []
