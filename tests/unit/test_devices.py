import ctypes
from pathlib import Path

import pynvml
import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from fakes import nvidia_machine
from fakes.nvidia_driver import HAS_COMPILER, NAME
from fakes.nvidia_machine import NvidiaMachine
from job_examples import cpu_machine, gpu_machine
from rekindle_service.cli.checks import Level
from rekindle_service.cli.checks.software_checks import gpus
from rekindle_service.config.settings import Settings
from rekindle_service.machine import slots as machine_slots
from rekindle_service.machine.slots import count_on_bus, cuda_visible_devices, find_machine, visible_gpus


def test_cpu_slots_may_exceed_the_cores():
    machine = find_machine(500, environment={})
    assert machine.count("cpu") == 500
    assert machine.slots[-1].name == "cpu:499"


def test_gpus_hidden_from_the_server_are_no_slots():
    every = ["cuda:0", "cuda:1", "cuda:2"]
    shown = {None: every, "": [], "2, 0": ["cuda:0", "cuda:2"], "GPU-0001": ["cuda:1"], "GPU-": every}
    shown |= {"-1": [], "nonsense": []}
    slots = gpu_machine(3).slots
    assert {setting: [slot.name for slot in visible_gpus(slots, setting)] for setting in shown} == shown


def test_a_job_sees_its_own_gpus_by_their_lasting_names_and_a_cpu_job_none():
    slots = (*gpu_machine(3).slots, *cpu_machine(1).slots)
    assert cuda_visible_devices(slots, ["cuda:2", "cuda:0"]) == "GPU-0002,GPU-0000"
    assert cuda_visible_devices(slots, ["cpu:0"]) == ""


def test_excluded_gpus_are_no_slots(monkeypatch):
    machine = gpu_machine(4, {(0, 1): "nvlink", (1, 2): "sys"})
    monkeypatch.setattr(machine_slots, "_find_gpus", lambda: (list(machine.slots), list(machine.links), 4))
    chosen = Settings(exclude_devices="cuda:0, GPU-0003,7,MIG-0004")
    machine = find_machine(1, environment={}, exclude=chosen.excluded_devices)
    assert [slot.name for slot in machine.slots] == ["cuda:1", "cuda:2", "cpu:0"]
    assert [(link.first, link.second) for link in machine.links] == [("cuda:1", "cuda:2")]
    with pytest.raises(ValidationError, match="first is neither"):
        Settings(exclude_devices="0,first")


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    return nvidia_machine.build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def driver(library, monkeypatch):
    if not HAS_COMPILER:
        pytest.skip("the stand-in is written in C: needs gcc")
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library / NAME)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    yield NvidiaMachine(library)
    for said in library.glob("*-[0-9]"):
        said.unlink()


def gpus_of(**environment):
    return [slot.name for slot in find_machine(0, environment).slots]


def test_a_gpu_that_is_lost_hides_no_other(driver):
    driver.say("lost", 1)
    with capture_logs() as logs:
        machine = find_machine(0, {})
    assert [(slot.name, slot.uuid) for slot in machine.slots] == [
        ("cuda:0", "GPU-0000"), ("cuda:2", "GPU-0002"), ("cuda:3", "GPU-0003"),
    ]  # fmt: skip
    assert (machine.known_gpus, [log["gpu"] for log in logs]) == (3, [1])
    assert {(link.first, link.second): link.kind for link in machine.links}["cuda:2", "cuda:3"] == "nvlink"


def test_a_gpu_whose_memory_is_not_reported_is_a_slot_all_the_same(driver):
    driver.say("no-memory", 0)
    assert [slot.memory for slot in find_machine(0, {}).slots] == [None, *[1 << 34] * 3]


def test_the_doctor_shows_each_gpu_whatever_the_others_answer(driver, tmp_path):
    driver.say("lost", 1)
    driver.say("no-memory", 2)
    found = {finding.name: finding for finding in gpus(tmp_path)}
    assert list(found) == ["gpu driver", "gpu 0", "gpu 1", "gpu 2", "gpu 3"]
    assert [found[f"gpu {number}"].level for number in range(4)] == [Level.OK, Level.PROBLEM, Level.OK, Level.OK]
    assert "memory not reported" in found["gpu 2"].detail


@pytest.mark.parametrize(("error", "warns"), [(9, True), (18, True), (12, False)])
def test_a_driver_that_refuses_is_said_and_a_machine_without_one_is_not(driver, error, warns):
    driver.say("refuses", 0, str(error))
    with capture_logs() as logs:
        assert find_machine(1, {}).slots == find_machine(1, {"CUDA_VISIBLE_DEVICES": ""}).slots
    assert bool(logs) is warns


def test_the_instances_of_a_gpu_that_mig_divides_are_slots_and_can_be_named(driver):
    driver.say("mig", 1, "2")
    machine = find_machine(0, {})
    assert [slot.uuid for slot in machine.slots] == ["GPU-0000", "MIG-0001-0", "MIG-0001-1", "GPU-0002", "GPU-0003"]
    assert [slot.bus_id for slot in machine.slots[:3]] == ["0000:3a:00.0", "0000:3b:00.0", "0000:3b:00.0"]
    assert machine.known_gpus == 4
    assert gpus_of(CUDA_VISIBLE_DEVICES="MIG-0001-1") == ["cuda:2"]
    assert cuda_visible_devices(machine.slots, ["cuda:2"]) == "MIG-0001-1"


@pytest.mark.parametrize(
    ("environment", "warns"),
    [
        ({"CUDA_VISIBLE_DEVICES": "2"}, True),
        ({"CUDA_VISIBLE_DEVICES": "2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, False),
        ({"CUDA_VISIBLE_DEVICES": "GPU-0002"}, False),
    ],
)
def test_an_index_is_that_of_nvidia_smi_and_a_warning_says_so_where_cuda_counts_otherwise(driver, environment, warns):
    driver.say("fast", 3)
    with capture_logs() as logs:
        assert gpus_of(**environment) == ["cuda:2"]
    assert bool(logs) is warns


def test_gpus_that_the_driver_knows_later_become_slots(driver):
    driver.say("refuses", 0, "9")
    machine = find_machine(2, {})
    assert machine.add(find_machine(0, {})) == []
    driver.unsay("refuses", 0)
    driver.say("lost", 2)
    assert [slot.name for slot in machine.add(find_machine(0, {}))] == ["cuda:0", "cuda:1", "cuda:3"]
    driver.unsay("lost", 2)
    assert [slot.name for slot in machine.add(find_machine(0, {}))] == ["cuda:2"]
    assert [slot.name for slot in machine.slots] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3", "cpu:0", "cpu:1"]
    assert len(machine.links) == 6
    assert machine.known_gpus == 4


def test_the_gpus_on_the_bus_are_counted_by_what_the_kernel_shows(tmp_path):
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300"), ("c", "0x8086", "0x030000")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    (tmp_path / "d").mkdir()
    assert count_on_bus(tmp_path) == 1
    assert count_on_bus(tmp_path / "none") == 0
