"""What the journal tells a starting keeper about the keepers and attempts before it."""

from dataclasses import dataclass, field
from pathlib import Path

from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.processes import boot_id
from rekindle.contract.run_dir.journal import RecordType, read_journal
from rekindle.keeper.retry_policy import AttemptRecord


@dataclass(slots=True)
class History:
    """``ended`` are the attempts of the current run only: a resume by the user begins a new budget."""

    run: int | None = None
    last_attempt: int = 0
    ended: list[AttemptRecord] = field(default_factory=list)
    open_attempt: int | None = None  # started, and its keeper died before it could write the end
    open_world_size: int = 0
    went_cold: bool = False  # an attempt was started in a fresh interpreter
    last_keeper_boot: str | None = None
    run_started_at: float | None = None  # seconds since the epoch: first attempt of this run
    attempted: bool = False  # an attempt of the current run was started
    unjudged: bool = False  # the last attempt's end is told, but not what follows from it
    job_ended: bool = False

    def lost_outcome(self) -> Outcome:
        """How the open attempt ended: nobody saw it, but the boot id tells whether the whole machine went down."""
        if self.last_keeper_boot != boot_id():
            return Outcome(OutcomeClass.HOST_LOST, "The machine went down under the job.")
        return Outcome(OutcomeClass.KEEPER_LOST, "The job's keeper was killed; its ranks ended with it.")


def read_history(journal: Path, run: int) -> History:
    """The story so far of run ``run``; earlier runs only count for the attempt numbers."""
    history = History()
    for record in read_journal(journal):
        fields = record.fields
        match record.type:
            case RecordType.KEEPER_STARTED:
                if fields["run"] != history.run:
                    history.run, history.ended, history.run_started_at = fields["run"], [], None
                history.last_keeper_boot = fields["keeper"]["boot_id"]
                history.job_ended = False
            case RecordType.ATTEMPT_STARTED:
                history.last_attempt = history.open_attempt = fields["attempt"]
                history.attempted = history.attempted or fields["run"] == run
                history.unjudged = False
                history.went_cold = history.went_cold or not fields["warm"]
                history.open_world_size = fields["world_size"]
                history.run_started_at = history.run_started_at or record.at
            case RecordType.ATTEMPT_ENDED:
                history.open_attempt, history.unjudged = None, True
                history.ended.append(AttemptRecord(Outcome.from_json(fields["outcome"]), bool(fields["progressed"])))
            case RecordType.RETRY_DECIDED:
                history.unjudged = False
            case RecordType.JOB_ENDED:
                history.job_ended, history.unjudged = True, False
    if history.run != run:
        history.ended, history.run_started_at, history.job_ended, history.unjudged = [], None, False, False
    return history
