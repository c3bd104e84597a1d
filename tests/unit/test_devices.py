import pytest
from pydantic import ValidationError

from job_examples import cpu_machine, gpu_machine
from rekindle_service.config.settings import Settings
from rekindle_service.machine import devices
from rekindle_service.machine.devices import cuda_visible_devices, find_machine, visible_gpus


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
    gpus = gpu_machine(4, {(0, 1): "nvlink", (1, 2): "sys"})
    monkeypatch.setattr(devices, "_find_gpus", lambda: (list(gpus.slots), list(gpus.links)))
    chosen = Settings(exclude_devices="cuda:0, GPU-0003,7")
    machine = find_machine(1, environment={}, exclude=chosen.excluded_devices)
    assert [slot.name for slot in machine.slots] == ["cuda:1", "cuda:2", "cpu:0"]
    assert [(link.first, link.second) for link in machine.links] == [("cuda:1", "cuda:2")]
    with pytest.raises(ValidationError, match="first is neither"):
        Settings(exclude_devices="0,first")
