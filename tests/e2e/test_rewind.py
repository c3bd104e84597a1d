"""A real training that is sent back to an older snapshot."""

from pathlib import Path

from e2e.served_job import ServedJob
from e2e.waiting import until
from rekindle.contract.run_dir.journal import RecordType
from rekindle_service.client import Client

_LONG = 120.0  # seconds


def steps_of(job: ServedJob) -> list[int]:
    return sorted(int(directory.name) for directory in job.run_dir.snapshots.glob("*") if directory.name.isdecimal())


def test_a_cancelled_training_continues_from_the_chosen_snapshot_and_keeps_the_pinned_one(
    client: Client, home: Path
) -> None:
    body = {
        "name": "rewound",
        "recipe": "ddp",
        "args": ["--epochs", "400"],
        "ranks": 1,
        "device": "cpu",
        "env": {"OMP_NUM_THREADS": "1"},
        "snapshot": {"every_steps": 20, "keep": 3},
    }
    job = ServedJob(client, home, body)
    until(lambda: len(steps_of(job)) == 3, "three snapshots", _LONG)
    client.cancel(job.id)
    until(lambda: job.state() == "cancelled", "the job is cancelled", _LONG)
    oldest, *newer = steps_of(job)
    path = f"/jobs/{job.id}"
    client.request("PUT", f"{path}/snapshots/{oldest}/pin")
    client.request("POST", f"{path}/resume", json={"snapshot": oldest})
    resumed = until(lambda: job.records(RecordType.RESUMED), "the training continues", _LONG)
    assert [record.step for record in resumed] == [oldest]
    rewound = job.records(RecordType.ROLLED_BACK)
    assert [(record.step, record.quarantined) for record in rewound] == [(oldest, newer)]
    until(lambda: len([step for step in steps_of(job) if step > newer[-1]]) == 3, "three newer snapshots", _LONG)
    until(lambda: not list(job.run_dir.snapshots.glob("quarantine-*")), "what was quarantined is deleted", _LONG)
    assert oldest in steps_of(job)
    configuration = client.request("GET", f"{path}/configuration")
    assert configuration["environment"]["packages"]["torch"]
    client.cancel(job.id)
    until(lambda: job.state() == "cancelled", "the job is cancelled again", _LONG)
