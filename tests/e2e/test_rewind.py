"""A real training that is sent back to an older snapshot, or to an older checkpoint of its own."""

from pathlib import Path

from cli_process import rekindle
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


_SCRIPT = """
import glob, re, sys
import torch

saved = sorted(glob.glob("ckpt_epoch_*.pt"), key=lambda path: int(re.findall(r"\\d+", path)[0]))
epoch = torch.load(saved[-1])["epoch"] if saved else 0
print("begins after epoch", epoch, sys.argv[1:], flush=True)
while epoch < 6:
    epoch += 1
    print(f"Epoch {epoch}/6 loss {1 / epoch:.3f}", flush=True)
    torch.save({"epoch": epoch, "weights": torch.randn(100)}, f"ckpt_epoch_{epoch}.pt")
"""


def test_a_script_that_loads_its_latest_checkpoint_continues_from_the_chosen_one(
    client: Client, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    body = {"script": "train.py", "code": {"path": str(tmp_path)}, "device": "cpu", "ranks": 1}
    job = ServedJob(client, home, {**body, "on_restart": ["--from", "{checkpoint}"]})
    assert job.finish() == "succeeded"
    listed = rekindle(home, "snapshots", job.id).stdout.splitlines()
    assert [line.split()[:3] for line in listed[1:]] == [
        [f"ckpt_epoch_{epoch}.pt", "epoch", str(epoch)] for epoch in range(6, 0, -1)
    ]
    refused = rekindle(home, "resume", job.id, "--from", "ckpt_epoch_9.pt")
    assert refused.returncode != 0
    assert "ckpt_epoch_9.pt" in refused.stderr
    resumed = rekindle(home, "resume", job.id, "--from", "ckpt_epoch_3.pt")
    assert resumed.returncode == 0, resumed.stderr
    assert job.finish() == "succeeded"
    chosen = job.records(RecordType.CHECKPOINT_CHOSEN)
    assert [(each.path, sorted(each.moved)) for each in chosen] == [
        ("ckpt_epoch_3.pt", ["ckpt_epoch_4.pt", "ckpt_epoch_5.pt", "ckpt_epoch_6.pt"])
    ]
    log = job.run_dir.attempt(2).rank(0).log("stdout").read_text().splitlines()
    assert log[0] == f"begins after epoch 3 ['--from', '{job.run_dir.code}/ckpt_epoch_3.pt']"
    assert [line.split()[1] for line in log[1:]] == ["4/6", "5/6", "6/6"]
    assert len(list((job.run_dir.root / "moved-away-2").iterdir())) == 3
