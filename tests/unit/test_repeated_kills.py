from job_examples import a_job
from rekindle.contract.outcome import Outcome
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle_service.scheduler.device_watch import RepeatedKills

SEGFAULT = {"class": "signal", "signal": "SIGSEGV", "rank": 0}
HANG = {"class": "hang", "rank": 0}
REASON = "3 times in a row a process died or hung on it, of 2 jobs"


def an_end(job, outcome, *devices, number=1, **columns):
    ended = Outcome.from_json({"message": "It has ended.", **outcome})
    return job, AttemptInfo(number, run=1, started_at=1.0, devices=list(devices), outcome=ended, **columns)


def added(*ends):
    kills, found = RepeatedKills(), {}
    for job, attempt in ends:
        found |= kills.add(attempt, job)
    return found


def jobs(count, **columns):
    return [a_job(name=f"job-{index}", device="cuda", **columns) for index in range(count)]


def test_a_device_on_which_jobs_die_again_and_again_is_found():
    one, other = jobs(2)
    ends = an_end(one, SEGFAULT, "cuda:1"), an_end(one, HANG, "cuda:1", number=2), an_end(other, SEGFAULT, "cuda:1")
    assert added(*ends[:2]) == {}
    assert added(*ends) == {"cuda:1": REASON}


def test_only_the_device_of_the_rank_that_died_counts():
    found = added(*(an_end(job, {**SEGFAULT, "rank": 2}, "cuda:0", "cuda:1", "cuda:3") for job in jobs(3)))
    assert list(found) == ["cuda:3"]
    pairs = [an_end(job, {**HANG, "rank": 1}, *(f"cuda:{i}" for i in range(4))) for job in jobs(3, devices_per_rank=2)]
    assert list(added(*pairs)) == ["cuda:2", "cuda:3"]
    assert added(*(an_end(job, {"class": "hang", "rank": None}, "cuda:0") for job in jobs(3))) == {}


def test_an_attempt_that_ends_well_clears_the_device():
    one, other, good = jobs(3)
    ends = an_end(one, SEGFAULT, "cuda:1"), an_end(other, SEGFAULT, "cuda:1")
    success = an_end(good, {"class": "success"}, "cuda:1")
    assert added(*ends, success, an_end(one, SEGFAULT, "cuda:1", number=2)) == {}


def test_a_script_that_dies_everywhere_is_no_fault_of_a_device():
    one, other = jobs(2)
    ends = [
        an_end(one, SEGFAULT, "cuda:0"),
        an_end(one, SEGFAULT, "cuda:1", number=2),
        an_end(one, HANG, "cuda:1", number=3),
    ]
    assert added(*ends, an_end(other, SEGFAULT, "cuda:1")) == {}
    assert added(*(an_end(job, SEGFAULT, "cuda:0") for job in jobs(4, experiment_id="sweep"))) == {}


def test_what_people_and_their_scripts_do_is_no_fault_of_a_device():
    for outcome in ({**SEGFAULT, "signal": "SIGKILL"}, {"class": "oom", "rank": 0}, {"class": "user_error", "rank": 0}):
        assert added(*(an_end(job, outcome, "cuda:0") for job in jobs(4))) == {}
    injected = [an_end(job, SEGFAULT, "cuda:0", faults=[{"fault": "segv"}]) for job in jobs(4)]
    assert added(*injected) == {}


def test_what_a_job_reports_of_its_hardware_counts_like_a_death():
    xid = {"class": "comm", "rank": 0, "evidence": {"hardware": "GPU-1: Xid 79"}}
    assert list(added(*(an_end(job, xid, "cuda:0") for job in jobs(3)))) == ["cuda:0"]


def test_an_attempt_counts_once():
    ends = [an_end(job, SEGFAULT, "cuda:1") for job in jobs(2)]
    assert added(*ends, *ends, *ends) == {}
