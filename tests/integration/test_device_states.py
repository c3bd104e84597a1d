"""What is known of devices by a server that finds another machine than the one before it."""

from job_examples import cpu_machine, gpu_machine, open_store, queued_job
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.jobs.device_states import DeviceStates
from rekindle_service.machine.health import DeviceHealth
from rekindle_service.machine.slots import Machine, Slot


def states(store, machine):
    found = DeviceStates(store, machine, DeviceHealth())
    found.refresh()
    return found


def test_a_gpu_stays_disabled_when_a_reboot_gives_it_another_index(tmp_path):
    store = open_store(tmp_path)
    first = states(store, gpu_machine(2))
    first.disable(first.machine.slots[1], "Xid 79", None)
    one, other = gpu_machine(2).slots
    swapped = Machine((Slot("cuda:0", "cuda", 0, uuid=other.uuid), Slot("cuda:1", "cuda", 1, uuid=one.uuid)))
    assert states(store, swapped).health.failed() == {"cuda:0": "Xid 79"}
    assert states(store, gpu_machine(1)).health.failed() == {}
    store.close()


def test_a_gpu_that_vanished_while_a_job_held_it_is_one_that_the_job_must_leave(tmp_path):
    store, home = open_store(tmp_path), Home(tmp_path / "home")
    for kind, devices in (("cuda", ["cuda:0", "cuda:3"]), ("cpu", ["cpu:9"])):
        job = queued_job(store, home, device=kind)
        store.transition(job.id, JobState.STARTING, expected={JobState.QUEUED}, reason="test", devices=devices)
    machine = Machine((*gpu_machine(2).slots, *cpu_machine(1).slots))
    reason = "this machine does not have it any more, or it is excluded from jobs"
    assert states(store, machine).health.failed() == {"cuda:3": reason}
    assert states(store, cpu_machine(1)).health.failed() == {}, "the driver may be away, and the job runs"
    store.close()
