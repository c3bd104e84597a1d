"""The server is killed at a line of the engine between a queued job and its end: one keeper runs it, once.

``--soak N`` kills at N of the lines.
"""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.faulty_run import SCRIPTS
from rekindle.contract.run_dir.journal import RecordType, read_journal
from rekindle.contract.run_dir.paths import RunDir
from script_process import ScriptProcess

KILLS = 5


@pytest.fixture
def engine() -> Iterator[ScriptProcess]:
    """Starts engines; see ``scripts/crashing_engine.py``."""
    engine = ScriptProcess(SCRIPTS / "crashing_engine.py")
    yield engine
    engine.close()


@pytest.mark.timeout(0)
def test_a_server_killed_at_any_line_starts_one_keeper_for_a_job(
    engine: ScriptProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    template = tmp_path / "template"
    assert engine.ask("prepare", template) == "prepared"
    undisturbed = shutil.copytree(template, tmp_path / "undisturbed", symlinks=True)
    lines = int(engine.ask("die", undisturbed, 0))
    assert lines > 200
    count = min(request.config.getoption("--soak") or KILLS, lines - 1)
    killed = 0
    for line in sorted(random.Random(lines).sample(range(1, lines), count)):
        home = shutil.copytree(template, tmp_path / "home", symlinks=True)
        killed += engine.ask("die", home, line) == "killed"
        assert engine.ask("finish", home) == "succeeded", f"killed at line {line}"
        (run,) = (home / "runs").iterdir()
        started = [each for each in read_journal(RunDir(run).journal) if each.type is RecordType.ATTEMPT_STARTED]
        assert len(started) == 1, f"killed at line {line}"
        assert not (home / "slots" / "violation").exists()
        shutil.rmtree(home)
    print(f"{killed} kills at the {lines} lines from a queued job to its end")
    assert killed > count // 2
