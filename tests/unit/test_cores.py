"""The cores of ranks, from recorded files of the kernel and of NVIDIA's driver."""

import os
import subprocess
import sys

import pytest

from rekindle.contract.cores import cores_of_rank, cores_of_slots, numa_node, parse_cores
from rekindle.contract.environment import AFFINITY, SLOTS


@pytest.fixture
def box(tmp_path):
    """Two processors with two GPUs each: the directories of the driver and of the PCI bus."""
    for index, (bus_id, node, cores) in enumerate(
        [
            ("0000:1a:00.0", 0, "0-3,8-11"),
            ("0000:1b:00.0", 0, "0-3,8-11"),
            ("0000:3b:00.0", 1, "4-7"),
            ("0000:5e:00.0", -1, "0-11"),
        ]
    ):
        gpu, device = tmp_path / "gpus" / bus_id.upper(), tmp_path / "pci" / bus_id
        gpu.mkdir(parents=True)
        device.mkdir(parents=True)
        (gpu / "information").write_text(f"Model: \t\t H100\nIRQ:   \t\t 1{index}\nGPU UUID: \t GPU-000{index}\n")
        (device / "numa_node").write_text(f"{node}\n")
        (device / "local_cpulist").write_text(f"{cores}\n")
    return {"gpus": tmp_path / "gpus", "pci": tmp_path / "pci"}


def cores(box, mode, visible="", slots="", local_rank=0, each=1, usable=range(12)):
    environment = {AFFINITY: mode, "CUDA_VISIBLE_DEVICES": visible, SLOTS: slots}
    return sorted(cores_of_rank(environment, local_rank, each, set(usable), **box))


def test_a_rank_runs_near_its_own_gpu(box):
    visible = "GPU-0002,GPU-0000"
    assert cores(box, "numa 4", visible) == [4, 5, 6, 7]
    assert cores(box, "numa 4", visible, local_rank=1) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert cores(box, "numa 4", visible, each=2) == list(range(12)), "its GPUs are at both processors"
    assert cores(box, "numa 4", visible, usable=[3, 4, 5]) == [4, 5], "a container may have fewer cores"


def test_where_nothing_is_known_a_rank_runs_everywhere(box):
    assert cores(box, "numa 4", "GPU-0003") == [], "the machine does not say"
    assert cores(box, "numa 4", "GPU-0000,GPU-0003", each=2) == []
    assert cores(box, "numa 4", "GPU-9999") == []
    assert cores(box, "numa 4", "0") == [], "an index means another GPU in another order"
    assert cores(box, "numa 4", "GPU-0000", usable=[7]) == []
    assert cores(box, "none 4", "GPU-0000") == cores(box, "", "GPU-0000") == []
    assert cores({"gpus": box["gpus"] / "none", "pci": box["pci"]}, "numa 4", "GPU-0000") == []


def test_cpu_slots_share_the_cores_equally_and_only_on_request(box):
    assert cores(box, "slots 4", slots="cpu:1,cpu:3") == [3, 4, 5]
    assert cores(box, "slots 4", slots="cpu:1,cpu:3", local_rank=1) == [9, 10, 11]
    assert cores(box, "slots 4", slots="cpu:1,cpu:3", each=2) == [3, 4, 5, 9, 10, 11]
    assert cores(box, "slots 5", slots="cpu:4") == [8, 9], "each has as many as the others"
    assert cores(box, "slots 13", slots="cpu:4") == [], "more slots than cores"
    assert cores(box, "numa 4", slots="cpu:1") == []
    assert cores(box, "slots 4", "GPU-0002", slots="cuda:2") == [4, 5, 6, 7]


def test_no_core_belongs_to_two_slots():
    for slots in range(1, 14):
        shares = [cores_of_slots([index], slots, set(range(3, 16))) for index in range(slots)]
        assert len(set().union(*shares)) == sum(map(len, shares))
        assert len(set(map(len, shares))) == 1


def test_lists_of_cores_are_read_as_the_kernel_writes_them():
    assert parse_cores("0-2,7\n") == {0, 1, 2, 7}
    assert parse_cores("\n") == set()
    with pytest.raises(ValueError, match="invalid literal"):
        parse_cores("some")


def test_a_machine_with_one_node_has_no_numa_nodes(box):
    assert [numa_node(each, box["pci"]) for each in ("0000:3b:00.0", "0000:5e:00.0", "0000:99:00.0")] == [1, None, None]


def test_all_threads_of_a_rank_are_bound_and_fewer_are_used():
    script = """
import os, sys, threading, types
from rekindle.contract.environment import RankEnv
from rekindle.rank.rank_process import bind_to_cores
chosen = []
sys.modules["torch"] = types.SimpleNamespace(get_num_threads=lambda: 64, set_num_threads=chosen.append)
done = threading.Event()
thread = threading.Thread(target=done.wait)
thread.start()
bind_to_cores(RankEnv.read(os.environ))
print([sorted(os.sched_getaffinity(task)) for task in (0, thread.native_id)], chosen)
done.set()
"""
    usable = sorted(os.sched_getaffinity(0))
    environment = {**os.environ, AFFINITY: f"slots {len(usable)}", SLOTS: f"cpu:{len(usable) - 1}"}
    environment.pop("OMP_NUM_THREADS", None)
    shown = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    expected = "[]" if len(usable) == 1 else "[1]"
    assert shown.stdout.strip() == f"[[{usable[-1]}], [{usable[-1]}]] {expected}"
