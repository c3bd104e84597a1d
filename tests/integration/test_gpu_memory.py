"""Waiting for GPU memory, against a stand-in for the driver's library: there is no GPU here."""

import threading
from pathlib import Path

import pytest

from fakes import nvidia_driver
from rekindle.keeper.observers import usage_log
from rekindle.keeper.observers.usage_log import GpuMemory

_GIB = 1 << 30
NONE = frozenset[int]()
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
    assert GpuMemory([device], library=driver).wait_released(NONE) == 0


def test_the_wait_ends_when_the_memory_is_released(driver: str, used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_log, "RELEASE_STEADY", 60.0)
    monkeypatch.setattr(usage_log, "RELEASE_TIMEOUT", 60.0)
    memory = GpuMemory(["GPU-a"], library=driver)
    used.write_text(str(9 * _GIB))
    part = used.with_suffix(".part")
    part.write_text(str(_GIB))
    giving_back = threading.Timer(0.3, lambda: part.replace(used))
    giving_back.start()
    assert memory.wait_released(NONE) == 0
    giving_back.join()
    assert not part.exists(), "it did wait"


def test_memory_that_stays_in_use_is_reported_in_bytes(
    driver: str, used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_log, "RELEASE_STEADY", 0.1)
    memory = GpuMemory(["GPU-a"], library=driver)
    used.write_text(str(9 * _GIB))
    assert memory.wait_released(NONE) == 8 * _GIB


def test_a_driver_that_does_not_answer_is_not_waited_for(driver: str) -> None:
    assert GpuMemory(["GPU-of-yesterday"], library=driver).wait_released(NONE) == 0
    assert GpuMemory(["0"], library="no-such-library.so").wait_released(NONE) == 0
    assert GpuMemory([], library=driver).wait_released(NONE) == 0


def test_a_driver_that_falls_silent_does_not_count_as_released_memory(
    driver: str, used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_log, "RELEASE_STEADY", 60.0)
    memory = GpuMemory(["GPU-a"], library=driver)
    used.rename(used.with_suffix(".away"))
    answering = threading.Timer(0.3, lambda: used.with_suffix(".away").replace(used))
    answering.start()
    assert memory.wait_released(NONE) == 0
    answering.join()
    assert used.exists(), "it did wait"


def test_on_a_shared_gpu_the_processes_of_the_job_are_waited_for_and_the_memory_of_others_is_not(
    driver: str, used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_log, "RELEASE_STEADY", 60.0)
    listed = used.with_name("used.processes")
    listed.write_text("100 200")
    memory = GpuMemory(["GPU-a"], shared=True, library=driver)
    used.write_text(str(9 * _GIB))
    assert memory.wait_released({300}) == 0
    part = used.with_suffix(".part")
    part.write_text("100")
    ending = threading.Timer(0.3, lambda: part.replace(listed))
    ending.start()
    assert memory.wait_released({200, 300}) == 0
    ending.join()
    assert not part.exists(), "it did wait"


def test_memory_that_killed_leftovers_still_release_is_not_taken_for_that_of_others(
    driver: str, used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_log, "RELEASE_STEADY", 1.0)
    used.write_text(str(9 * _GIB))
    part = used.with_suffix(".part")
    part.write_text(str(_GIB))
    giving_back = threading.Timer(0.3, lambda: part.replace(used))
    giving_back.start()
    memory = GpuMemory(["GPU-a"], settles=True, library=driver)
    giving_back.join()
    used.write_text(str(9 * _GIB))
    assert memory.wait_released(NONE) == 8 * _GIB
