"""What all tests share; ``tiers.py`` has the tiers, and what is printed about skipped and unstable tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

pytest_plugins = ["tiers"]

# Whatever else the machine does meanwhile: no example is held against a clock.
settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")

os.environ.setdefault("REKINDLE_SPARE_KEEPERS", "0")  # most servers of tests start few jobs


@pytest.fixture(autouse=True)
def default_log() -> Iterator[None]:
    """A test that runs a command in its own process may have sent the log to its captured, soon closed, stderr."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home as a server makes it: closed to everybody else."""
    directory = tmp_path / "home"
    directory.mkdir(mode=0o700)
    return directory
