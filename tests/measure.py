"""Where the time of the tests goes: ``python tests/measure.py -n 3 --dist loadfile -m 'not long'``.

Runs pytest with the given arguments and prints, by directory and by file, the seconds of set-up, call and tear-down
and what was started: servers, keepers, torchruns, other processes, migrations, pages in a browser. Counts only what a
test's own process starts: a keeper that a server starts belongs to that server.
"""

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

KINDS = ("server", "keeper", "torchrun", "other", "migration", "page")
_started: Counter[str] = Counter()


def _kind_of(arguments: Any) -> str:
    """What a command line starts."""
    words = arguments if isinstance(arguments, str) else " ".join(os.fsdecode(word) for word in arguments)
    if "rekindle_service serve" in words or "isolated_server" in words:
        return "server"
    if "rekindle.keeper" in words:
        return "keeper"
    return "torchrun" if "torchrun" in words or "torch.distributed.run" in words else "other"


def _count_processes(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        _started[_kind_of(arguments[1])] += 1


class Measure:
    """Seconds and starts of each test, on the process that runs it and on the one that prints."""

    def __init__(self) -> None:
        self.seconds: dict[str, Counter[str]] = defaultdict(Counter)
        self.starts: dict[str, Counter[str]] = defaultdict(Counter)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        _started.clear()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        if call.when == "teardown":
            item.user_properties.append(("started", dict(_started)))
        return (yield)

    def pytest_fixture_setup(self, fixturedef: Any) -> None:
        if fixturedef.argname == "visitor":
            _started["page"] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid][report.when] += report.duration
        if report.when == "teardown":
            self.starts[report.nodeid].update(dict(report.user_properties).get("started", {}))

    def table(self, groups: Iterable[tuple[str, list[str]]], rows: int) -> Iterator[str]:
        """The ``rows`` groups of tests that took longest."""
        yield f"{'seconds':>8} {'set-up':>7} {'tests':>6} " + " ".join(f"{kind:>9}" for kind in KINDS)
        sums = []
        for name, tests in groups:
            seconds = sum((self.seconds[test] for test in tests), Counter())
            sums.append((sum(seconds.values()), name, seconds, sum((self.starts[test] for test in tests), Counter())))
        for total, name, seconds, starts in sorted(sums, key=lambda row: (-row[0], row[1]))[:rows]:
            counts = " ".join(f"{starts[kind]:9}" for kind in KINDS)
            yield f"{total:8.1f} {seconds['setup']:7.1f} {len(dict(groups)[name]):6} {counts}  {name}"

    def grouped(self, parts: int) -> list[tuple[str, list[str]]]:
        """The tests by the first ``parts`` names of their path; 0: all, -1: by file."""
        groups: dict[str, list[str]] = defaultdict(list)
        for test in self.seconds:
            path = Path(test.partition("::")[0])
            groups[str(path) if parts < 0 else str(Path(*path.parent.parts[:parts])) if parts else "all"].append(test)
        return list(groups.items())


def _count_migrations() -> None:
    from rekindle_service.store import migrations

    configure = migrations._config

    @wraps(configure)
    def counted(connection: Any) -> Any:
        _started["migration"] += 1
        return configure(connection)

    migrations._config = counted


_measure = Measure()


def pytest_configure(config: pytest.Config) -> None:
    sys.addaudithook(_count_processes)
    _count_migrations()
    config.pluginmanager.register(_measure)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for title, groups, rows in (
        ("directories", [*_measure.grouped(0), *_measure.grouped(3)], 40),
        ("files", _measure.grouped(-1), int(os.environ.get("MEASURE_FILES", "40"))),
        ("tests", [(test, [test]) for test in _measure.seconds], int(os.environ.get("MEASURE_TESTS", "60"))),
    ):
        terminalreporter.section(title)
        for line in _measure.table(groups, rows):
            terminalreporter.write_line(line)


if __name__ == "__main__":
    directory = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (directory, os.environ.get("PYTHONPATH"))))
    sys.path.insert(0, directory)
    raise SystemExit(pytest.main(["-p", "measure", *sys.argv[1:]]))
