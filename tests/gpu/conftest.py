"""What the tests for GPUs share: the device, runs without a server, and one table of what was found, also as JSON."""

import json
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import rekindle
from faults.faulty_run import FaultyRun

GPUS = torch.cuda.device_count()
SCRIPTS = Path(__file__).parent / "scripts"
_found: dict[str, Any] = {}
_results: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu-report", type=Path, metavar="FILE", help="write what tests/gpu has found there, as JSON")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marker = item.get_closest_marker("gpu")
        needed = marker.kwargs.get("cards", 1) if marker else 0
        if needed > GPUS:
            item.add_marker(
                pytest.mark.skip(reason=f"needs {needed} GPU{'s' if needed > 1 else ''}, and there are {GPUS}")
            )


@pytest.fixture
def found(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Note a figure or a text for the table."""

    def note(name: str, value: object) -> None:
        _found[name] = round(value, 3) if isinstance(value, float) else value

    return note


@pytest.fixture
def compares(pytestconfig: pytest.Config) -> bool:
    """Times are compared by the kit, which has the machine to itself, and not among other tests."""
    return pytestconfig.getoption("--gpu-report") is not None


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., FaultyRun]]:
    """Makes a run of a script of ``scripts`` and starts its keeper, which is no server's."""
    runs: list[FaultyRun] = []

    def make(script: str, *args: str, ranks: int = 2, **spec: Any) -> FaultyRun:
        spec["device"] = "cuda" if GPUS else "cpu"
        run = FaultyRun(tmp_path / f"run{len(runs) + 1}", str(SCRIPTS / script), *args, ranks=ranks, **spec)
        runs.append(run)
        visible = ",".join(map(str, range(GPUS)))
        run.start(cold=True, CUDA_VISIBLE_DEVICES=visible, PYTHONPATH=str(Path(rekindle.__file__).parents[1]))
        return run

    yield make
    for run in runs:
        run.close()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or not report.passed:
        _results[report.nodeid.rpartition("::")[2]] = report.outcome


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if (path := config.getoption("--gpu-report")) is None:
        return
    cards = [torch.cuda.get_device_name(index) for index in range(GPUS)]
    software = {"torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version()}
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if GPUS else None
    report = {"cards": cards, **software, "nccl": nccl, "results": _results, "found": _found}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    rows = [("cards", ", ".join(cards) or "none"), *software.items(), *_results.items(), *_found.items()]
    width = max(len(str(name)) for name, _ in rows)
    terminalreporter.section("GPUs")
    for name, value in rows:
        terminalreporter.write_line(f"{name:{width}}  {str(value).splitlines()[0][:160] if str(value) else ''}")
