"""Waiting for GPU memory, against a stand-in for the driver's library: there is no GPU here."""

import threading
from pathlib import Path

import pytest

from fakes import nvidia_driver
from rekindle.keeper.observers import usage
from rekindle.keeper.observers.usage import GpuMemory

_GIB = 1 << 30
pytestmark = pytest.mark.skipif(not nvidia_driver.HAS_COMPILER, reason="the stand-in is written in C: needs gcc")


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """What the driver reports as in use, in bytes."""
    path = tmp_path / "used"
    path.write_text(str(_GIB))
    return path


@pytest.fixture
def driver(tmp_path: Path, used: Path) -> str:
    return str(nvidia_driver.build(tmp_path, used))


@pytest.mark.parametrize("device", ["GPU-a", "0"])
def test_what_was_in_use_before_is_not_waited_for(driver: str, device: str) -> None:
    assert GpuMemory([device], driver).wait_released() == 0


def test_the_wait_ends_when_the_memory_is_released(driver: str, used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "RELEASE_STEADY", 60.0)
    monkeypatch.setattr(usage, "RELEASE_TIMEOUT", 60.0)
    memory = GpuMemory(["GPU-a"], driver)
    used.write_text(str(9 * _GIB))
    part = used.with_suffix(".part")
    part.write_text(str(_GIB))
    giving_back = threading.Timer(0.3, lambda: part.replace(used))
    giving_back.start()
    assert memory.wait_released() == 0
    giving_back.join()
    assert not part.exists(), "it did wait"


def test_memory_that_stays_in_use_is_reported_in_bytes(
    driver: str, used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "RELEASE_STEADY", 0.1)
    memory = GpuMemory(["GPU-a"], driver)
    used.write_text(str(9 * _GIB))
    assert memory.wait_released() == 8 * _GIB


def test_a_driver_that_does_not_answer_is_not_waited_for(driver: str) -> None:
    assert GpuMemory(["GPU-of-yesterday"], driver).wait_released() == 0
    assert GpuMemory(["0"], "no-such-library.so").wait_released() == 0
    assert GpuMemory([], driver).wait_released() == 0
