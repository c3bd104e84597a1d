"""A keeper that obeys the contract and plays the part that the job's first argument names. No torch, no ranks.

``python fake_keeper.py RUN_DIR``. Parts: succeed, fail, fail-once, wait (until the intent says otherwise), silent
(ends without a word), mute (ends after its first record), once-lost (killed in its first life, succeeds in its second).
Slots are proven exclusive: each device is a lock file next to the runs; finding one held leaves a ``violation`` file.
"""

import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

from rekindle.contract.files import read_json, write_json
from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.locks import ExclusiveLock, LockHeldError
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.journal import Journal, RecordType, read_journal
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import RankState, RankStatus
from rekindle.contract.states import JobIntent

_FAILURE = Outcome(OutcomeClass.SIGNAL, "Rank 1 was killed by SIGKILL.", rank=1, signal="SIGKILL").to_json()
_SUCCESS = Outcome(OutcomeClass.SUCCESS, "Every rank was done.").to_json()


class Play:
    def __init__(self, run_dir: RunDir) -> None:
        self.run_dir = run_dir
        self.spec = JobSpec.from_json(read_json(run_dir.spec))
        self.journal = Journal(run_dir.journal)

    @property
    def intent(self) -> RunIntent:
        return RunIntent.from_json(read_json(self.run_dir.intent))

    def begin(self) -> None:
        self.journal.write(RecordType.KEEPER_STARTED, run=self.intent.run, keeper=asdict(ProcessIdentity.own()))

    def attempt(self) -> int:
        devices = self.intent.devices
        past = [record for record in read_journal(self.run_dir.journal) if record.type is RecordType.ATTEMPT_STARTED]
        number = len(past) + 1
        self.journal.write(
            RecordType.ATTEMPT_STARTED,
            attempt=number, run=self.intent.run, world_size=len(devices), devices=devices,
        )  # fmt: skip
        self.report(number, step=10 * number)
        self.journal.write(RecordType.RANKS_RUNNING, attempt=number, ranks=[])
        return number

    def report(self, number: int, **reported: object) -> None:
        rank_dir = self.run_dir.attempt(number).rank(0)
        rank_dir.root.mkdir(parents=True, exist_ok=True)
        status = RankStatus(0, 0, 1, "host", os.getpid(), 0, "cpu:0", RankState.RUNNING, phase="train", steps=100)
        write_json(rank_dir.status, {**status.to_json(), "steps_per_second": 2.0, **reported})

    def end_attempt(self, number: int, outcome: dict) -> None:
        self.journal.write(
            RecordType.ATTEMPT_ENDED,
            attempt=number, outcome=outcome, resumed_from_step=None, last_step=10 * number, snapshot_step=10 * number,
        )  # fmt: skip

    def end_job(self, state: str, outcome: dict | None) -> None:
        self.journal.write(RecordType.JOB_ENDED, run=self.intent.run, state=state, reason=f"{state}!", outcome=outcome)

    # --- parts

    def succeed(self) -> None:
        number = self.attempt()
        self.report(number, step=100)
        self.end_attempt(number, _SUCCESS)
        self.end_job("succeeded", _SUCCESS)

    def fail(self) -> None:
        self.end_attempt(self.attempt(), _FAILURE)
        self.end_job("failed", _FAILURE)

    def fail_once(self) -> None:
        number = self.attempt()
        self.end_attempt(number, _FAILURE)
        self.journal.write(
            RecordType.RETRY_DECIDED, attempt=number, reason="first failure", delay=0, next_try_at=time.time()
        )
        self.succeed()

    def wait(self) -> None:
        number = self.attempt()
        while (want := self.intent.intent) is JobIntent.RUN:
            time.sleep(0.01)
        self.end_attempt(number, _FAILURE)
        self.end_job("queued" if want is JobIntent.DRAIN else "cancelled", None)

    def mute(self) -> None:
        pass

    def once_lost(self) -> None:
        lives = [record for record in read_journal(self.run_dir.journal) if record.type is RecordType.KEEPER_STARTED]
        if len(lives) > 1:
            self.end_attempt(1, Outcome(OutcomeClass.KEEPER_LOST, "The keeper died.").to_json())
            self.succeed()
            return
        self.attempt()
        os.kill(os.getpid(), signal.SIGKILL)


def own_slots(play: Play) -> list[ExclusiveLock]:
    directory = play.run_dir.root.parent.parent / "slots"
    directory.mkdir(exist_ok=True)
    try:
        return [ExclusiveLock(directory / device) for device in play.intent.devices]
    except LockHeldError as error:
        (directory / "violation").write_text(str(error))
        raise


def main() -> None:
    run_dir = RunDir(Path(sys.argv[1]))
    play = Play(run_dir)
    part = play.spec.args[0] if play.spec.args else "succeed"
    if part == "silent":
        sys.exit("fake keeper: nothing to say")
    lock = ExclusiveLock(run_dir.keeper_lock)
    records = read_journal(run_dir.journal)
    if any(record.type is RecordType.JOB_ENDED and record.run == play.intent.run for record in records):
        return  # a keeper before this one has ended the run
    slots = own_slots(play)
    play.begin()
    getattr(play, part.replace("-", "_"))()
    for one in [*slots, lock]:
        one.release()


if __name__ == "__main__":
    main()
