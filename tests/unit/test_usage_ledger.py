"""The space of all jobs, kept while they change: always what adding everything up would give."""

import random

from rekindle_service.retention.disk_usage import KindBytes, UsageLedger


def sums(jobs: dict[str, tuple[int, str | None, KindBytes | None]]) -> dict[str | None, tuple[int, int, int]]:
    owners = {owner for _, owner, _ in jobs.values()}
    found = {}
    for name in owners:
        mine = [usage for _, owner, usage in jobs.values() if owner == name]
        measured = [usage for usage in mine if usage is not None]
        found[name] = len(mine), len(measured), sum(usage.total for usage in measured)
    return found


def test_sums_and_order_are_those_of_the_jobs_whatever_changes() -> None:
    chance = random.Random(3)
    ledger, jobs = UsageLedger(), {}
    for number in range(3000):
        job_id = f"job{number}"
        owner = chance.choice(["ann", "ben", None])
        ledger.add(job_id, number, owner)
        jobs[job_id] = (number, owner, None)
        other = chance.choice(sorted(jobs))
        if chance.random() < 0.3:
            ledger.remove(other)
            jobs.pop(other)
        else:
            usage = KindBytes(*(chance.randrange(5) for _ in range(4)))
            ledger.set(other, usage)
            jobs[other] = (*jobs[other][:2], usage)
        if number % 211 == 0 or number == 2000:
            key = {each: (-usage.total if usage else 0, number) for each, (number, _, usage) in jobs.items()}
            assert [job_id for _, _, job_id, _ in ledger.largest()] == sorted(jobs, key=key.__getitem__)
    kept = {name: (each.jobs, each.measured, each.usage.total) for name, each in ledger.owners.items()}
    assert kept == sums(jobs)
    assert len(ledger) == len(jobs)


def test_a_job_that_is_not_measured_counts_as_empty() -> None:
    ledger = UsageLedger()
    for number in (2, 1, 3):
        ledger.add(f"job{number}", number, "ann")
    ledger.set("job3", KindBytes(code=1))
    assert [job_id for _, _, job_id, _ in ledger.largest()] == ["job3", "job1", "job2"]
    assert ledger.usage("job1") is None
    assert ledger.usage("unknown") is None
