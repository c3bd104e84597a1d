"""The tools that are compared: how they are installed, and how each begins the same training on two ranks.

Ray and torchft come from the package index into environments of their own below ``build/bench``; torch itself is there
that of the running environment, by a ``.pth`` file.
"""

import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from recovery import WORKAROUND
from side_by_side import CommandRun, ServedRun, await_spare, server, torchrun

from doc_pages import ROOT
from free_port import free_port
from rekindle.contract import __version__
from rekindle_service.client import Client

BARE, FIXED, RAY, TORCHFT, REKINDLE = "torchrun", "torchrun, worked around", "Ray Train", "torchft", "rekindle"
TOOLS = (BARE, FIXED, RAY, TORCHFT, REKINDLE)
SETTINGS = {
    BARE: "--max-restarts=1000",
    FIXED: "--max-restarts=1000, TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
    RAY: "a local cluster that runs already; FailureConfig(max_failures=-1), report() with a checkpoint",
    TORCHFT: "two replica groups of one rank, each under torchrun --max-restarts=1000; lighthouse with "
    "--min_replicas 1 --quorum_tick_ms 100 --join_timeout_ms 10000, as in its README",
    REKINDLE: "a server that runs already, with one spare keeper; defaults",
}
_PACKAGES = {RAY: ("ray", "ray[train]"), TORCHFT: ("torchft", "torchft")}
_SCRIPTS = Path(__file__).with_name("scripts")
_FAULTS = Path(__file__).parents[1] / "faults" / "scripts" / "corpus.py"
_RESTARTS = 1000
_RAY_WORKERS = range(10002, 20000)  # ports

Run = CommandRun | ServedRun
Start = Callable[[Path, list[str], float | None], Run]
"""Begin a training in a directory, with arguments and seconds after which a hang is to be found (None: default)."""


@contextmanager
def starts(directory: Path, names: tuple[str, ...] = TOOLS) -> Iterator[tuple[dict[str, Start], dict[str, str]]]:
    """How each tool begins a training, and why others cannot be installed."""
    code = directory / "code"
    code.mkdir()
    for path in (*_SCRIPTS.glob("*_ddp.py"), _FAULTS):
        (code / path.name).write_bytes(path.read_bytes())
    found: dict[str, Start] = {BARE: _torchrun(code, {}), FIXED: _torchrun(code, WORKAROUND)}
    skipped = {}
    with ExitStack() as stack:
        for name, begin in ((RAY, _ray), (TORCHFT, _torchft)):
            if name in names:
                try:
                    found[name] = begin(code, directory, _installed(name), stack)
                except (subprocess.CalledProcessError, RuntimeError) as error:
                    skipped[name] = str(error)
        if REKINDLE in names:
            warm = {"REKINDLE_SPARE_KEEPERS": "1", "REKINDLE_SPARE_MEMORY": "0"}
            found[REKINDLE] = _rekindle(stack.enter_context(server(directory / "home", **warm)), code)
            await_spare()
        yield {name: found[name] for name in names if name in found}, skipped


def versions() -> dict[str, str]:
    """The versions of what is installed, by name."""
    found = {"torch": torch.__version__, REKINDLE: __version__}
    for name, (package, _) in _PACKAGES.items():
        python = _environment(package) / "bin" / "python"
        if python.exists():
            command = [python, "-c", f"import importlib.metadata as m; print(m.version({package!r}))"]
            found[name] = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return found


def _environment(package: str) -> Path:
    return ROOT / "build" / "bench" / f"venv-{package}"


def _installed(name: str) -> Path:
    """The directory of the programs of an environment that has the tool; raises CalledProcessError."""
    package, requirement = _PACKAGES[name]
    environment = _environment(package)
    programs, done = environment / "bin", environment / "installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        (site,) = environment.glob("lib/python*/site-packages")
        (site / "running.pth").write_text(sysconfig.get_path("purelib"))
        install = [programs / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", requirement]
        subprocess.run(install, check=True)
        done.touch()
    return programs


def _torchrun(code: Path, env: dict[str, str]) -> Start:
    def start(place: Path, args: list[str], hang: float | None) -> CommandRun:
        command = torchrun(*args, *_timeout(hang), restarts=_RESTARTS, script=code / "plain_ddp.py")
        return CommandRun(place, [command], env)

    return start


def _torchft(code: Path, _directory: Path, programs: Path, _stack: ExitStack) -> Start:
    def start(place: Path, args: list[str], hang: float | None) -> CommandRun:
        script, port = code / "torchft_ddp.py", free_port()
        words = [*args, *_timeout(hang)]
        group = torchrun(*words, restarts=_RESTARTS, ranks=1, python=programs / "python", script=script)
        lighthouse = [str(programs / "torchft_lighthouse"), f"--bind=127.0.0.1:{port}", "--min_replicas=1"]
        lighthouse += ["--quorum_tick_ms=100", "--join_timeout_ms=10000"]
        env = {"TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}"}
        return CommandRun(place, [group, group], env, services=[lighthouse])

    return start


def _ray(code: Path, directory: Path, programs: Path, stack: ExitStack) -> Start:
    address = stack.enter_context(_ray_cluster(directory / "ray", programs))
    env = {"PYTHONPATH": str(code), "RAY_ADDRESS": address, "RAY_DEDUP_LOGS": "0"}

    def start(place: Path, args: list[str], hang: float | None) -> CommandRun:
        command = [str(programs / "python"), str(code / "ray_ddp.py"), *args, *_timeout(hang)]
        return CommandRun(place, [command], env)

    return start


@contextmanager
def _ray_cluster(directory: Path, programs: Path) -> Iterator[str]:
    """The address of a cluster of this machine alone."""
    directory.mkdir()
    port = next(port for port in iter(free_port, 0) if port not in _RAY_WORKERS)
    address = f"127.0.0.1:{port}"
    command = [str(programs / "ray"), "start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={port}"]
    command += [
        "--num-cpus=8",
        "--include-dashboard=false",
        "--disable-usage-stats",
        "--object-store-memory=200000000",
        f"--temp-dir={directory}/t",
    ]
    cluster = CommandRun(directory, [command], {"PATH": f"{programs}:{os.environ['PATH']}"})
    try:
        while "Ray runtime started" not in cluster.output():
            if not cluster.alive():
                raise RuntimeError(f"ray start has ended: {cluster.output()[-500:]}")
            time.sleep(0.2)
        yield address
    finally:
        cluster.close()


def _rekindle(client: Client, code: Path) -> Start:
    def start(place: Path, args: list[str], hang: float | None) -> ServedRun:
        options = {} if hang is None else {"hang_timeout": hang}
        return ServedRun(place, args, client, code, **options)

    return start


def _timeout(hang: float | None) -> list[str]:
    return [] if hang is None else [f"--timeout={hang}"]
