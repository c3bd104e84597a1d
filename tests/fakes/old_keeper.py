"""A keeper of version 0.1 that keeps an attempt running while the server is upgraded. No torch, no ranks, no rekindle.

``python old_keeper.py RUN_DIR``: it owns the run directory's lock, reads ``spec.json`` and ``intent.json``, writes the
journal and ``status.json`` and hears the FIFO ``bell``, all by the names of version 0.1, whatever newer versions call
them. The run succeeds once the file RUN_DIR/finish is there; on a message of the FIFO it reads the intent again.
"""

import fcntl
import json
import os
import select
import sys
import time
from pathlib import Path

RUN_DIR = Path(sys.argv[1])
ENDINGS = {"cancel": ("cancelled", "cancelled"), "drain": ("preempted", "queued")}  # outcome class, state of the job


def write_record(kind: str, **fields: object) -> None:
    with (RUN_DIR / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps({"type": kind, "at": time.time(), **fields}) + "\n")


def read_intent() -> dict[str, object]:
    """Fails, as version 0.1 does, where one of its fields is missing or has another meaning."""
    intent = json.loads((RUN_DIR / "intent.json").read_text())
    if intent["want"] not in ("run", "drain", "cancel") or not isinstance(intent["run"], int) or not intent["devices"]:
        raise ValueError(f"no intent of version 0.1: {intent}")
    return intent


def identity() -> dict[str, object]:
    start_time = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return {"pid": os.getpid(), "start_time": start_time, "boot_id": boot_id}


def begin_attempt(number: int, snapshot: int) -> None:
    intent, own = read_intent(), identity()
    run, devices = intent["run"], intent["devices"]
    write_record("keeper_started", run=run, keeper=own)
    generation = f"{number}-0badcafe"
    (RUN_DIR / "fence.json").write_text(json.dumps({"generation": generation}) + "\n")
    started = {"attempt": number, "run": run, "generation": generation, "world_size": len(devices), "devices": devices}
    write_record("attempt_started", **started, warm=True)
    for rank in range(len(devices)):
        prepare_rank(RUN_DIR / "attempts" / str(number) / "ranks" / str(rank), snapshot)
    ranks = [{"rank": rank, "local_rank": rank, "pid": own["pid"], "start_time": own["start_time"]} for rank in (0, 1)]
    write_record("ranks_running", attempt=number, ranks=ranks)
    write_record("resumed", attempt=number, step=snapshot)


def prepare_rank(folder: Path, snapshot: int) -> None:
    """Its files; the status is that of the recorded first attempt, brought up to now."""
    folder.mkdir(parents=True)
    for name in ("stacks.log", "stderr.log", "stdout.log"):
        (folder / name).touch()
    status = json.loads((RUN_DIR / "attempts" / "1" / "ranks" / folder.name / "status.json").read_text())
    status |= {"state": "running", "pid": os.getpid(), "start_time": identity()["start_time"]}
    status |= {"step": snapshot + 2, "resumed_from_step": snapshot, "durable_step": snapshot, "memory_step": None}
    status |= {"updated_at": time.time(), "updated_monotonic": time.monotonic()}
    (folder / "status.json").write_text(json.dumps(status) + "\n")


def end(number: int, klass: str, state: str, snapshot: int) -> None:
    fields = ("rank", "exit_code", "signal", "exception", "file", "line")
    outcome = {"class": klass, "message": f"{klass}.", **dict.fromkeys(fields), "retryable": True, "evidence": {}}
    steps = {"resumed_from_step": snapshot, "last_step": snapshot + 2, "durable_step": snapshot}
    write_record("attempt_ended", attempt=number, outcome=outcome, **steps, saving_seconds=0.1, progressed=True)
    write_record(
        "job_ended", run=read_intent()["run"], state=state, reason=f"{state} by the old keeper", outcome=outcome
    )


def messages(fifo: int) -> list[dict[str, object]]:
    if not select.select([fifo], [], [], 0.05)[0]:
        return []
    return [json.loads(line) for line in os.read(fifo, 65536).splitlines()]


def main() -> None:
    lock = os.open(RUN_DIR / "keeper.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    json.loads((RUN_DIR / "spec.json").read_text())["cadence"]["keep"]
    if not (RUN_DIR / "bell").exists():
        os.mkfifo(RUN_DIR / "bell", 0o600)
    fifo = os.open(RUN_DIR / "bell", os.O_RDWR)
    number = max(int(folder.name) for folder in (RUN_DIR / "attempts").iterdir()) + 1
    snapshot = max(int(folder.name) for folder in (RUN_DIR / "snapshots").glob("[0-9]*"))
    begin_attempt(number, snapshot)
    while True:
        if (RUN_DIR / "finish").exists():
            end(number, "success", "succeeded", snapshot)
            return
        for message in messages(fifo):
            if message.get("bell") == "stack":
                with (RUN_DIR / f"attempts/{number}/ranks/{message['rank']}/stacks.log").open("a") as stacks:
                    stacks.write("Current thread 0x01 (most recent call first):\n  File tiny.py, line 33 in main\n")
            if message.get("bell") == "intent" and (want := read_intent()["want"]) in ENDINGS:
                end(number, *ENDINGS[str(want)], snapshot)
                return


if __name__ == "__main__":
    main()
