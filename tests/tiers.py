"""The two tiers of the tests, and what a run reports at its end about skipped and unstable ones.

``-m 'not long'`` is the short tier, which every commit runs; ``-m long`` the rest. A test of a long directory belongs
to the short tier where it is marked ``short``; elsewhere a long test is marked ``long``.

``--soak N`` adds the tests for nights, and gives each test of random faults N of them: ``--soak 100`` is 100 power
cuts, 100 changed bytes, or 100 kills of one job, so name the test that N is meant for. Where the faults are not random,
such as a kill at every system call, N does not matter.

With ``--rerun-alone`` a test that fails is run again at the end, alone and twice. One that passes both times is
unstable: a defect, of the product or of the test, that must be explained. The run fails where a test fails again, or
where more than ``MAX_UNSTABLE`` are unstable.
"""

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

LONG_DIRECTORIES = ("e2e", "ecosystem", "faults", "gpu", "slurm")
MAX_UNSTABLE = 2
_MAX_RERUN = 10  # with more failures than these, something is broken and not unstable
_RERUN_SECONDS = 900.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", type=int, metavar="N", help="run the long random tests too, each with N faults")
    parser.addoption("--rerun-alone", action="store_true", help="run tests that fail again, alone and twice")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Ending(config))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip(reason="a long run: --soak N")
    for item in items:
        directory = item.path.relative_to(config.rootpath / "tests").parts[0]
        if directory in LONG_DIRECTORIES and not item.get_closest_marker("short"):
            item.add_marker("long")
        if config.getoption("--soak") is None and item.get_closest_marker("soak"):
            item.add_marker(skip)


@dataclass
class _Unstable:
    """A test that failed once and passed twice."""

    failure: str
    reruns: list[str]


@dataclass(eq=False)
class _Ending:
    """What the process that collects the reports says when all tests have run."""

    config: pytest.Config
    failures: dict[str, str] = field(default_factory=dict)  # by test, what its first failing phase printed
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    unstable: dict[str, _Unstable] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            printed = [report.longreprtext, *(f"--- {title}\n{text}" for title, text in report.sections)]
            self.failures.setdefault(report.nodeid, "\n".join(printed))
        elif report.skipped and isinstance(report.longrepr, tuple):
            self.skipped[str(report.longrepr[2]).removeprefix("Skipped: ")] += 1

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        wanted = self.config.getoption("--rerun-alone") and exitstatus == pytest.ExitCode.TESTS_FAILED
        if not wanted or not 0 < len(self.failures) <= _MAX_RERUN:
            return
        for test, failure in self.failures.items():
            first = self._rerun(test)
            second = first if first.returncode else self._rerun(test)
            if second.returncode == 0:
                self.unstable[test] = _Unstable(failure, [first.stdout, second.stdout])
        if len(self.unstable) == len(self.failures) <= MAX_UNSTABLE:
            session.exitstatus = pytest.ExitCode.OK

    def _rerun(self, test: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rP", test]
        try:
            return subprocess.run(
                command, cwd=self.config.rootpath, capture_output=True, text=True, errors="replace",
                timeout=_RERUN_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            return subprocess.CompletedProcess(command, 1, str(error), "")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.skipped:
            terminalreporter.section("skipped, by reason")
            for reason, count in self.skipped.most_common():
                terminalreporter.write_line(f"{count:5}  {reason}")
        for test, found in self.unstable.items():
            terminalreporter.section(f"unstable: {test}")
            terminalreporter.write_line(f"failed beside the other tests:\n{found.failure}")
            for number, output in enumerate(found.reruns, 1):
                terminalreporter.write_line(f"passed alone, time {number}:\n{output}")
        if len(self.unstable) > MAX_UNSTABLE:
            terminalreporter.write_line(f"{len(self.unstable)} unstable tests: at most {MAX_UNSTABLE} are let through")
