"""From the facts of an ended attempt to its outcome. Pure: no clock, no file, no process.

The root cause is the first failure by time. Ranks that failed because a peer vanished are cascades: they are named in
the evidence and never blamed while another rank has a cause of its own.
"""

import errno
import re
import signal
from typing import Any

from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.rank_records import RankError
from rekindle.keeper.accusation import Hang
from rekindle.keeper.facts import AttemptFacts, Ending, RankFacts

_COMM = re.compile(
    r"connectFullMesh|\[gloo|gloo/transport|NCCL|ncclRemoteError|DistBackendError|DistNetworkError|DistStoreError"
    r"|recvValue failed",
    re.IGNORECASE,
)
_CONNECTION = re.compile(r"connection (reset|closed|refused)|broken pipe|Socket Timeout", re.IGNORECASE)
_NO_MEMORY = {"MemoryError", "OutOfMemoryError"}
_MEMORY_RAN_OUT = re.compile(r"out of memory|can't allocate memory", re.IGNORECASE)
_NEVER_CURED = {
    "SyntaxError",
    "IndentationError",
    "TabError",
    "ImportError",
    "ModuleNotFoundError",
}
_DISK = re.compile(rf"\[Errno ({errno.ENOSPC}|{errno.EDQUOT})\]|No space left on device")


def diagnose(facts: AttemptFacts) -> Outcome:
    """The outcome of an attempt."""
    if facts.ending is Ending.DRAIN or (facts.ending is Ending.DONE and facts.drained):
        return _drained(facts)
    if facts.ending is Ending.DONE:
        return Outcome(OutcomeClass.SUCCESS, "Every rank finished.", evidence=_evidence(facts))
    if facts.ending is Ending.TIME_LIMIT:
        return Outcome(OutcomeClass.CANCELLED, "Stopped at the job's time limit.", retryable=False)
    if facts.ending is Ending.CANCEL:
        return Outcome(OutcomeClass.CANCELLED, "Stopped as asked.", evidence=_evidence(facts))
    if facts.hang is not None:
        return _hung(facts, facts.hang)
    if facts.ending is Ending.LAUNCH_STALLED:
        return _launch_stalled(facts)
    if facts.agent_signal is not None:
        return _agent_killed(facts)
    culprit = root_cause(facts)
    if culprit is None or (is_cascade(culprit) and len(facts.ranks) < facts.world_size):
        return _launch_error(facts)  # what the others followed happened to a rank that had not begun
    if culprit.error is None and culprit.stopped_by_torchrun:
        return _ranks_stopped(facts)
    return _rank_outcome(culprit, facts)


def root_cause(facts: AttemptFacts) -> RankFacts | None:
    """The rank that failed first of its own accord, else the first cascade, else None where no rank failed."""
    failed = [rank for rank in facts.ranks.values() if rank.failed]
    own = [rank for rank in failed if not is_cascade(rank)]
    return min(own or failed, key=lambda rank: (rank.failed_at, rank.rank), default=None)


def failed_by_itself(facts: AttemptFacts) -> bool:
    """True where the script ended by an exception of its own, not by what was done to it."""
    cause = root_cause(facts)
    return cause is not None and cause.error is not None and not is_cascade(cause)


def is_cascade(rank: RankFacts) -> bool:
    """True where a failure looks like the consequence of another's: a lost connection, or torchrun's SIGTERM."""
    if rank.error is not None:
        return is_comm_error(rank.error)
    return rank.stopped_by_torchrun


def is_comm_error(error: RankError) -> bool:
    """True where a collective or the rendezvous failed.

    What anybody may say of a connection counts only from inside torch.distributed: a data loader whose worker was
    killed says it too, and a download that is refused.
    """
    words = f"{error.exception}: {error.message}"
    return bool(_COMM.search(words) or ("torch/distributed" in error.traceback and _CONNECTION.search(words)))


def _drained(facts: AttemptFacts) -> Outcome:
    saved = (
        "Saved and stopped as asked." if facts.drained else "Stopped as asked; the script did not say that it saved."
    )
    return Outcome(OutcomeClass.PREEMPTED, saved, evidence=_evidence(facts))


def _hung(facts: AttemptFacts, hang: Hang) -> Outcome:
    accused = hang.accusation
    return Outcome(
        OutcomeClass.HANG,
        f"Nothing moved for {hang.seconds:.0f} s: {accused.sentence}.",
        rank=accused.rank,
        file=None if accused.place is None else accused.place.file,
        line=None if accused.place is None else accused.place.line,
        evidence={**_evidence(facts), **hang.evidence},
    )


def _agent_killed(facts: AttemptFacts) -> Outcome:
    name = signal_name(facts.agent_signal)
    return Outcome(
        OutcomeClass.SIGNAL,
        f"The torchrun agent was killed by {name}; its ranks died with it.",
        signal=name,
        evidence=_evidence(facts),
    )


def _ranks_stopped(facts: AttemptFacts) -> Outcome:
    return Outcome(
        OutcomeClass.SIGNAL,
        "torchrun stopped its ranks by SIGTERM though none had failed: somebody told it to, or a rank that was done "
        "has crashed; the end of its log is in the evidence.",
        signal="SIGTERM",
        evidence={**_evidence(facts), "agent_log": facts.agent_log_tail},
    )


def _launch_stalled(facts: AttemptFacts) -> Outcome:
    late = [rank for rank in range(facts.world_size) if rank not in facts.ranks]  # none, if the last came just then
    first = f" (the first of them is rank {late[0]})" if late else ""
    return Outcome(
        OutcomeClass.LAUNCH_ERROR,
        f"After ten minutes {len(late) or 'some'} of {facts.world_size} ranks had not started{first}; the end of "
        "torchrun's log is in the evidence.",
        evidence={**_evidence(facts), "late": late, "agent_log": facts.agent_log_tail},
    )


def _launch_error(facts: AttemptFacts) -> Outcome:
    started = len(facts.ranks)
    return Outcome(
        OutcomeClass.LAUNCH_ERROR,
        f"torchrun ended with exit code {facts.agent_exit_code} after {started} of {facts.world_size} ranks "
        "had started; the end of its log is in the evidence.",
        exit_code=facts.agent_exit_code,
        evidence={**_evidence(facts), "agent_log": facts.agent_log_tail},
    )


def _rank_outcome(rank: RankFacts, facts: AttemptFacts) -> Outcome:
    if rank.error is not None:
        return _exception_outcome(rank, rank.error, facts)
    if rank.oom is not None:
        return Outcome(
            OutcomeClass.OOM,
            f"Rank {rank.rank} was killed by the kernel because memory ran out.",
            rank=rank.rank,
            signal="SIGKILL",
            evidence={**_evidence(facts), "kernel": rank.oom},
        )
    if rank.signal is not None:
        name = signal_name(rank.signal)
        return Outcome(
            OutcomeClass.SIGNAL,
            f"Rank {rank.rank} was killed by {name}.",
            rank=rank.rank,
            signal=name,
            evidence=_evidence(facts),
        )
    if facts.disk_full:
        return Outcome(
            OutcomeClass.DISK_FULL,
            f"Rank {rank.rank} ended while the disk of its run directory was full, and could not say why.",
            rank=rank.rank,
            exit_code=rank.exit_code,
            evidence=_evidence(facts),
        )
    shown = "an unknown exit code" if rank.exit_code is None else f"exit code {rank.exit_code}"
    hint = ": os._exit and os.exec leave no word that it is." if rank.exit_code == 0 else "."
    return Outcome(
        OutcomeClass.USER_ERROR,
        f"Rank {rank.rank} ended with {shown} before its script was done{hint}",
        rank=rank.rank,
        exit_code=rank.exit_code,
        evidence=_evidence(facts),
    )


def _exception_outcome(rank: RankFacts, error: RankError, facts: AttemptFacts) -> Outcome:
    return Outcome(
        _class_of(error),
        f"Rank {rank.rank} {_raised(error)}",
        rank=rank.rank,
        exit_code=rank.exit_code if error.exit_code is None else error.exit_code,
        exception=error.exception,
        file=error.file,
        line=error.line,
        retryable=error.exception not in _NEVER_CURED,
        evidence={**_evidence(facts), "traceback": error.traceback},
    )


def _raised(error: RankError) -> str:
    place = "" if error.file is None else f" at {error.file}:{error.line}"
    first_line = error.message.splitlines()[0] if error.message else ""
    if error.exit_code is None:
        return f"raised {error.exception}{place}" + (f": {first_line}" if first_line else ".")
    if first_line in ("", str(error.exit_code)):  # argparse, for one, tells standard error what is wrong, and exits
        return f"exited with code {error.exit_code}{place}; the end of its output may tell why."
    return f"exited with code {error.exit_code}{place}: {first_line}"


def _class_of(error: RankError) -> OutcomeClass:
    if error.exception in _NO_MEMORY or _MEMORY_RAN_OUT.search(error.message):
        return OutcomeClass.OOM
    if _DISK.search(error.message):
        return OutcomeClass.DISK_FULL
    if error.exception == "NonFiniteError":  # rekindle's own
        return OutcomeClass.NAN
    return OutcomeClass.COMM if is_comm_error(error) else OutcomeClass.USER_ERROR


def _evidence(facts: AttemptFacts) -> dict[str, Any]:
    """What the other ranks did, so that a reader can check the judgement."""
    cascades = [rank.rank for rank in facts.ranks.values() if rank.failed and is_cascade(rank)]
    return {
        "ending": facts.ending,
        "cascades": cascades,
        **({"survivors": facts.survivors} if facts.survivors else {}),
        **({"gpu_memory_still_held": facts.gpu_memory_held} if facts.gpu_memory_held else {}),
    }


def signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"
