import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_examples import a_job, cpu_machine, gpu_machine
from rekindle.contract.job_options import LinkRule
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.machine.slots import Machine
from rekindle_service.scheduler.allocation import SHOWN_POSITIONS, AllocationState, allocate


def plan(queue, machine, taken=(), states=None, **situation):
    holding = [a_job(devices=[name]) for name in taken]
    return allocate(queue, AllocationState(machine, holding, (states or {}).get, **situation))


def reasons(made):
    return {job_id: place[:2] for job_id, place in made.queue_positions.items()}


def started(made):
    return [(job.id, devices) for job, devices in made.starts]


def test_free_slots_are_given_to_the_first_jobs_of_the_queue():
    first, second, third = a_job(), a_job(), a_job()
    made = plan([first, second, third], cpu_machine(2))
    assert started(made) == [(first.id, ["cpu:0"]), (second.id, ["cpu:1"])]
    assert reasons(made) == {third.id: (1, "1 CPU slot, 0 free")}
    assert started(plan([first], cpu_machine(2), taken=["cpu:0"])) == [(first.id, ["cpu:1"])]


def test_nothing_starts_while_the_disk_lacks_space_and_each_job_says_so():
    first, big, held = a_job(), a_job(min_ranks=3, max_ranks=3), a_job(intent=JobIntent.HOLD)
    lack = "41 MB free, at least 100 MB are needed"
    made = plan([first, big, held], cpu_machine(3), lack_of_space=lack)
    assert made.starts == []
    reason = "disk space: 41 MB free, at least 100 MB are needed"
    assert [reasons(made)[job.id] for job in (first, big)] == [(1, reason), (2, reason)]
    assert reasons(made)[held.id][1] == "on hold"


def test_a_job_whose_next_checkpoint_does_not_fit_waits_and_the_others_start():
    big, small = a_job(attempt=1), a_job()
    lacks = {big.id: "200 MB free, at least 400 MB are needed (300 MB for its next checkpoint)"}
    made = plan([big, small], cpu_machine(1), own_lack_of_space=lambda job: lacks.get(job.id))
    assert started(made) == [(small.id, ["cpu:0"])]
    assert reasons(made) == {big.id: (None, f"disk space: {lacks[big.id]}")}


def test_a_big_job_is_not_overtaken_by_small_ones():
    big, small = a_job(min_ranks=2, max_ranks=2), a_job()
    made = plan([big, small], cpu_machine(2), taken=["cpu:1"])
    assert made.starts == []
    assert reasons(made) == {
        big.id: (1, "2 CPU slots, 1 free"),
        small.id: (2, f"after #{big.number}, which needs 2 slots"),
    }


def test_jobs_for_gpus_and_for_cpus_do_not_wait_for_each_other():
    machine = Machine((*gpu_machine(1).slots, *cpu_machine(1).slots))
    gpu, blocked, cpu = a_job(device="cuda"), a_job(device="cuda"), a_job()
    assert started(plan([gpu, blocked, cpu], machine)) == [(gpu.id, ["cuda:0"]), (cpu.id, ["cpu:0"])]


def test_an_elastic_job_takes_what_is_free_up_to_its_most():
    job = a_job(min_ranks=1, max_ranks=4)
    assert started(plan([job], cpu_machine(8)))[0][1] == ["cpu:0", "cpu:1", "cpu:2", "cpu:3"]
    assert started(plan([job], cpu_machine(8), taken=[f"cpu:{i}" for i in range(6)]))[0][1] == ["cpu:6", "cpu:7"]


@pytest.mark.parametrize("intent", [JobIntent.HOLD, JobIntent.DRAIN, JobIntent.CANCEL])
def test_a_job_that_must_not_start_keeps_nobody_waiting(intent):
    held, other = a_job(intent=intent), a_job()
    made = plan([held, other], cpu_machine(1))
    assert started(made) == [(other.id, ["cpu:0"])]
    assert reasons(made)[held.id] == (None, "on hold")


@pytest.mark.parametrize("state", [*JobState, None])
def test_a_job_starts_only_after_the_jobs_it_waits_for_have_succeeded(state):
    job, other = a_job(after=["aaaaaaaaaa", "bbbbbbbbbb"]), a_job()
    made = plan([job, other], cpu_machine(2), states={"aaaaaaaaaa": JobState.SUCCEEDED, "bbbbbbbbbb": state})
    starts = state is JobState.SUCCEEDED
    assert (job.id in dict(started(made))) is starts
    assert other.id in dict(started(made))
    assert starts or "bbbbbbbbbb" in reasons(made)[job.id][1]


def test_a_job_too_big_for_this_machine_keeps_nobody_waiting():
    giant, gpu, small = a_job(min_ranks=3, max_ranks=3), a_job(device="cuda"), a_job()
    made = plan([giant, gpu, small], cpu_machine(2))
    assert started(made) == [(small.id, ["cpu:0"])]
    assert reasons(made)[giant.id] == (None, "3 CPU slots, but this machine has 2")
    assert reasons(made)[gpu.id] == (None, "1 GPU slot, but this machine has 0")


@pytest.mark.parametrize("options", [{}, {"obstacles": {"slurm": None}, "kinds": {"cpu"}}], ids=["alone", "with Slurm"])
def test_a_long_queue_is_read_only_as_far_as_it_matters(options):
    read = 0

    def queue():
        nonlocal read
        while True:
            read += 1
            yield a_job()

    made = plan(queue(), cpu_machine(2), **options)
    assert len(made.starts) == 2
    assert read <= SHOWN_POSITIONS + 4
    assert [place for place, *_ in made.queue_positions.values()] == list(range(1, SHOWN_POSITIONS + 1))


@given(
    sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4), st.integers(-2, 2)), max_size=20),
    total=st.integers(0, 6),
    taken=st.sets(st.integers(0, 5)),
)
def test_whatever_the_queue_no_slot_is_given_twice_and_no_job_overtakes_another(sizes, total, taken):
    jobs = [a_job(min_ranks=least, max_ranks=least + more, priority=priority) for least, more, priority in sizes]
    queue = sorted(jobs, key=lambda job: (-job.priority, job.number))
    names = {f"cpu:{index}" for index in taken}
    made = plan(queue, cpu_machine(total), taken=names)
    given_away = [device for _, devices in made.starts for device in devices]
    assert len(given_away) == len(set(given_away))
    assert set(given_away) <= {f"cpu:{index}" for index in range(total)} - names
    for job, devices in made.starts:
        assert job.spec.min_ranks <= len(devices) <= job.spec.max_ranks
    possible = [job.id for job in queue if job.spec.min_ranks <= total]
    assert [job.id for job, _ in made.starts] == possible[: len(made.starts)]
    left = len({f"cpu:{index}" for index in range(total)} - names) - len(given_away)
    if len(made.starts) < len(possible):
        assert next(job for job in queue if job.id == possible[len(made.starts)]).spec.min_ranks > left


NVLINK_PAIRS = {(0, 1): "nvlink", (2, 3): "nvlink", (0, 2): "sys", (0, 3): "sys", (1, 2): "sys", (1, 3): "sys"}


def test_named_slots_are_the_only_ones_that_a_job_gets_and_are_reserved_for_it():
    machine = gpu_machine(4)
    named = a_job(device="cuda:2,cuda:3", min_ranks=2, max_ranks=2)
    assert started(plan([named], machine)) == [(named.id, ["cuda:2", "cuda:3"])]
    other, blocked = a_job(device="cuda"), a_job(device="cuda:3")
    made = plan([named, other, blocked], machine, taken=["cuda:2"])
    assert started(made) == [(other.id, ["cuda:0"])], "cuda:3 is kept for the first job"
    assert reasons(made) == {
        named.id: (1, "2 of cuda:2 and cuda:3, 1 free"),
        blocked.id: (2, f"after #{named.number}, which needs 2 slots"),
    }


def test_slots_that_no_longer_exist_are_named():
    job, other = a_job(device="cuda:0,cuda:7"), a_job(device="cuda")
    made = plan([job, other], gpu_machine(1))
    assert reasons(made)[job.id][1] == "cuda:7, which this machine does not have or no longer offers to jobs"
    assert started(made) == [(other.id, ["cuda:0"])]


def test_a_process_gets_all_its_devices_or_none():
    pair, elastic = a_job(devices_per_rank=2), a_job(devices_per_rank=2, max_ranks=4)
    assert plan([pair], cpu_machine(1)).starts == []
    assert started(plan([pair, elastic], cpu_machine(7))) == [
        (pair.id, ["cpu:0", "cpu:1"]),
        (elastic.id, ["cpu:2", "cpu:3", "cpu:4", "cpu:5"]),
    ]


def test_links_are_required_or_avoided_and_a_job_waits_for_such_a_pair():
    machine = gpu_machine(4, NVLINK_PAIRS)
    two = {"device": "cuda", "min_ranks": 2, "max_ranks": 2}
    linked, apart = a_job(links=LinkRule.REQUIRED, **two), a_job(links=LinkRule.AVOIDED, **two)
    assert started(plan([linked], machine)) == [(linked.id, ["cuda:0", "cuda:1"])]
    assert started(plan([apart], machine)) == [(apart.id, ["cuda:0", "cuda:2"])]
    taken = ["cuda:1", "cuda:2"]
    assert started(plan([apart], machine, taken)) == [(apart.id, ["cuda:0", "cuda:3"])]
    made = plan([linked], machine, taken)
    assert reasons(made)[linked.id] == (1, "2 GPU slots, each pair linked, 2 free")
