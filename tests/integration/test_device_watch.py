"""What the server learns of its GPUs from a stand-in for the driver, which a real process queries."""

import getpass
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.waiting import until
from fakes import nvidia_machine
from fakes.nvidia_driver import HAS_COMPILER
from fakes.nvidia_machine import NvidiaMachine
from job_examples import open_store, queued_job
from rekindle.contract.environment import RUN_DIR
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.jobs.device_states import DeviceStates
from rekindle_service.machine.gpu_report import STARTING, GpuProbe
from rekindle_service.machine.health import DeviceHealth
from rekindle_service.machine.monitor import MachineMonitor
from rekindle_service.machine.slots import Machine, Slot
from rekindle_service.scheduler.device_watch import DeviceWatch
from rekindle_service.store import Store

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="needs gcc")
GIB = 1 << 30
MACHINE = Machine(
    tuple(
        Slot(f"cuda:{index}", "cuda", index, uuid=f"GPU-000{index}", bus_id=f"0000:{0x3A + index:02x}:00.0")
        for index in range(4)
    )
)


@dataclass
class Watched:
    driver: NvidiaMachine
    store: Store
    home: Home
    devices: DeviceStates
    watch: DeviceWatch
    probe: GpuProbe

    @property
    def health(self) -> DeviceHealth:
        return self.devices.health

    def until(self, **reasons: str) -> None:
        """Wait until exactly these slots are unusable, each with its reason."""
        expected = {name.replace("_", ":"): reason for name, reason in reasons.items()}
        until(lambda: self.health.unusable() == expected, f"unusable is {expected}")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvidia_machine.build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def watched(library: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setattr("rekindle_service.scheduler.device_watch._INTERVAL", 0.05)
    store = open_store(home)
    where = Home(home)
    where.create()
    devices = DeviceStates(store, MACHINE, DeviceHealth())
    probe = GpuProbe([str(slot.uuid) for slot in MACHINE.slots], interval=0.05, timeout=0.5)
    watch = DeviceWatch(store, where, devices, probe, lambda: MACHINE, lambda: 0)
    found = Watched(NvidiaMachine(library), store, where, devices, watch, probe)
    watch.start()
    assert found.health.unusable() == dict.fromkeys((slot.name for slot in MACHINE.slots), STARTING)
    found.until()
    yield found
    watch.close()
    store.close()
    for said in library.glob("*-[0-9]"):
        said.unlink()


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate()


def test_a_gpu_that_a_process_of_no_job_uses_is_not_allocated_and_shows_that_process(
    watched: Watched, stranger: "subprocess.Popen[bytes]"
) -> None:
    watched.driver.say("processes", 0, f"{stranger.pid} {70 * GIB}\n{stranger.pid} {GIB}")
    name = f"process {stranger.pid} ({Path(f'/proc/{stranger.pid}/comm').read_text().strip()} of {getpass.getuser()})"
    watched.until(cuda_0=f"{name} uses 70 GiB of it, and 1 other process too")
    [user, _] = watched.health.users("cuda:0")
    assert (user.pid, user.user, user.memory_bytes) == (stranger.pid, getpass.getuser(), 70 * GIB)
    assert watched.health.failed() == {}, "jobs that run there may stay"
    watched.driver.unsay("processes", 0)
    watched.until()


def test_the_processes_of_jobs_do_not_make_their_gpus_unusable(watched: Watched) -> None:
    job = queued_job(watched.store, watched.home)
    run_dir = watched.home.run_dir(job.id)
    run_dir.root.mkdir(parents=True, exist_ok=True)
    lock = "import sys; from rekindle.contract.locks import ExclusiveLock; from pathlib import Path\n"
    lock += "import subprocess; held = ExclusiveLock(Path(sys.argv[1])); subprocess.run(['cat'])"
    keeper = subprocess.Popen([sys.executable, "-c", lock, str(run_dir.keeper_lock)], stdin=subprocess.PIPE)
    left = subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={**os.environ, RUN_DIR: str(run_dir.root)})
    try:
        child = until(
            lambda: Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split(), "it has a child"
        )[0]
        watched.store.transition(
            job.id, JobState.STARTING, expected={JobState.QUEUED}, reason="test", devices=["cuda:1", "cuda:3"]
        )
        watched.driver.say("processes", 1, f"{child} {GIB}\n{left.pid} {GIB}")
        watched.driver.say("processes", 3, f"4194303 {GIB}")  # of a container of the job, perhaps
        watched.driver.say("used", 1, str(12 * GIB))
        watched.driver.say("processes", 2, f"{os.getpid()} 5")
        until(lambda: "cuda:2" in watched.health.unusable(), "the stranger is known")
        assert list(watched.health.unusable()) == ["cuda:2"]
    finally:
        for process in (keeper, left):
            process.communicate()


def test_memory_in_use_by_nobody_who_is_known_keeps_jobs_away(watched: Watched) -> None:
    watched.driver.say("used", 2, str(8 * GIB))
    watched.driver.say("used", 1, str(GIB // 4))
    watched.driver.say("processes", 3, f"4194303 {3 * GIB}")
    watched.until(
        cuda_2="8 of its 16 GiB are in use by processes that the driver does not name",
        cuda_3="process 4194303, which is not visible here, uses 3 GiB of it",
    )


def test_a_gpu_that_fails_is_unusable_until_a_person_enables_it(watched: Watched) -> None:
    watched.driver.say("xid", 1, "79")
    watched.driver.say("xid", 2, "13")  # of one job, whose fault it is
    watched.driver.say("errors", 3, "2")
    errors = "memory errors that could not be corrected (ECC) since the driver's start"
    watched.until(cuda_1="Xid 79: the GPU has fallen off the bus", cuda_3=f"2 {errors}")
    assert watched.health.failed() == watched.health.unusable()
    for name in ("cuda:1", "cuda:3"):
        slot = watched.devices.slot(name)
        watched.devices.enable(slot, "ann")
    watched.until()
    watched.driver.say("errors", 3, "3")
    watched.until(cuda_3=f"3 {errors}")
    assert watched.store.devices.states()["GPU-0003"].by is None


def test_a_gpu_that_is_lost_while_a_job_holds_it_has_failed(watched: Watched) -> None:
    job = queued_job(watched.store, watched.home)
    watched.store.transition(job.id, JobState.STARTING, expected={JobState.QUEUED}, reason="test", devices=["cuda:0"])
    watched.driver.say("lost", 0)
    watched.driver.say("remap", 2)
    watched.until(
        cuda_0="the driver has lost this GPU (GPU is lost)",
        cuda_2="a damaged row of its memory could not be replaced (row remapping failed)",
    )
    assert set(watched.health.failed()) == {"cuda:0", "cuda:2"}


def test_a_driver_that_hangs_blocks_only_the_process_that_queries_it(watched: Watched) -> None:
    watched.driver.say("hangs", 0)
    reason = "the driver has not answered for 0 seconds"
    watched.until(**{f"cuda_{index}": reason for index in range(4)})
    watched.watch.check()  # returns while the driver hangs
    watched.driver.unsay("hangs", 0)
    watched.until()


def test_the_machine_page_gets_what_is_in_use_from_the_same_process(watched: Watched) -> None:
    monitor = MachineMonitor(MACHINE, watched.home.root, watched.probe.readings)
    watched.driver.say("used", 2, "7000")

    def used() -> dict[str, int | None]:
        monitor.sample()
        return {name: reading.memory_used_bytes for name, reading in monitor.history()[-1].gpus.items()}

    until(lambda: used() == {"cuda:0": 0, "cuda:1": 0, "cuda:2": 7000, "cuda:3": 0}, "what is in use is known")
    watched.driver.say("lost", 1)
    until(lambda: "cuda:1" not in used(), "nothing is known of a lost GPU")
    watched.driver.say("hangs", 0)
    until(lambda: used() == {}, "nothing is known of a driver that hangs")
    watched.driver.unsay("hangs", 0)


def test_the_revision_changes_only_with_the_health_of_a_device(watched: Watched) -> None:
    before = watched.health.revision
    watched.watch.check()
    assert watched.health.revision == before
    watched.driver.say("processes", 0, f"{os.getpid()} {GIB}")
    until(watched.health.unusable, "the stranger is known")
    assert watched.health.revision == before + 1


def test_gpus_that_the_driver_does_not_know_yet_are_searched_until_it_does(
    library: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    for name in ("_INTERVAL", "_SEARCH_INTERVAL"):
        monkeypatch.setattr(f"rekindle_service.scheduler.device_watch.{name}", 0.05)
    where, store = Home(home), open_store(home)
    where.create()
    machine, found = Machine(()), Machine(())
    probe = GpuProbe([], interval=0.05, timeout=5.0)
    watch = DeviceWatch(store, where, DeviceStates(store, machine, DeviceHealth()), probe, lambda: found, lambda: 2)
    watch.start()
    try:
        found = Machine(MACHINE.slots[:2], known_gpus=2)
        until(lambda: set(probe.readings()) == {str(slot.uuid) for slot in MACHINE.slots[:2]}, "the GPUs are asked")
        assert machine.slots == MACHINE.slots[:2]
    finally:
        watch.close()
        store.close()
