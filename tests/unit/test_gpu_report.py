import pytest

from rekindle_service.machine.gpu_report import (
    GpuReport,
    GpuState,
    foreign_users,
    in_use_reason,
    lasting_faults,
    xid_faults,
)
from rekindle_service.machine.health import DeviceUser
from rekindle_service.machine.slots import Slot

GIB = 1 << 30


def test_a_report_that_the_probe_never_prints_is_no_report():
    assert GpuReport.from_json({"gpus": {"GPU-1": {"lost": "gone"}}, "xids": [["GPU-1", 79]]}).gpus["GPU-1"].lost
    for wrong in ({}, {"gpus": {"a": {"colour": 1}}, "xids": []}, {"gpus": {}, "xids": [1]}, []):
        with pytest.raises((TypeError, KeyError, ValueError)):
            GpuReport.from_json(wrong)


def test_xids_are_matched_by_uuid_and_by_the_bus_id_of_the_kernels_log():
    slots = [Slot("cuda:0", "cuda", 0, uuid="GPU-a", bus_id="0000:3b:00.0"), Slot("cuda:1", "cuda", 1, uuid="GPU-b")]
    found = xid_faults([("0000:3B:00", 79), ("GPU-b", 48), ("GPU-b", 31), ("0000:99:00", 79)], slots)
    assert found == {
        "cuda:0": "Xid 79: the GPU has fallen off the bus",
        "cuda:1": "Xid 48: a memory error that cannot be corrected",
    }


def test_the_largest_user_is_named_and_the_control_daemon_of_shared_gpus_is_none():
    users = [DeviceUser(1, "a", "ann", 3 * GIB), DeviceUser(2, "b", None, 5 * GIB), DeviceUser(3, "c", "ann", None)]
    assert in_use_reason(GpuState(), users) == "process 2 (b) uses 5 GiB of it, and 2 other processes too"
    assert in_use_reason(GpuState(), users[2:]) == "process 3 (c of ann) uses it"
    small = in_use_reason(GpuState(), [DeviceUser(4, "d", "ann", 5)])
    assert small == "process 4 (d of ann) uses less than 1 GiB of it"
    mps = DeviceUser(1, "nvidia-cuda-mps-server", "root", None)
    assert foreign_users(GpuState(processes=[(1, 5)]), lambda _: mps, held=False) == ([], [])


def test_a_healthy_gpu_has_no_faults():
    assert lasting_faults(GpuState(used=1, total=2, memory_errors=0)) == []
    assert len(lasting_faults(GpuState(lost="off the bus", memory_errors=1, remap_failed=True))) == 3


def test_a_fault_of_a_gpu_that_mig_divides_is_one_of_all_its_instances():
    slots = [Slot(f"cuda:{number}", "cuda", number, uuid=f"MIG-{number}", bus_id="0000:3b:00.0") for number in (0, 1)]
    slots.append(Slot("cuda:2", "cuda", 2, uuid="GPU-b", bus_id="0000:9b:00.0"))
    assert xid_faults([("0000:3B:00", 79)], slots).keys() == {"cuda:0", "cuda:1"}
