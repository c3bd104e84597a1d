"""From the result of an ended attempt to its outcome. Pure: no clock, no file, no process.

The root cause is the first failure by time. Ranks that failed because a peer vanished are cascades: they are listed in
the evidence and never named as the cause while another rank has one of its own.
"""

import re
import signal
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from rekindle.contract.job_options import LaunchMode
from rekindle.contract.outcome import Outcome, OutcomeClass, SavedProgress
from rekindle.contract.run_dir.rank_records import RankError
from rekindle.keeper.attempt_result import AttemptResult, Culprit, Ending, RankResult
from rekindle.keeper.error_kinds import (
    DeviceError,
    WatchdogReport,
    class_of,
    device_error,
    device_error_in,
    gloo_timeout,
    hardware_xid,
    hidden_cause,
    is_comm_error,
    watchdog_report,
)

_CERTAIN_BUGS = {
    "SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError", "ScriptMissingError",
    "DivergenceError",  # ``Run(on_divergence="stop")``
}  # fmt: skip
_CERTAIN_AT_THE_START = (
    "Expected to have finished reduction in the prior iteration",
    "Expected to mark a variable ready only once",
)
"""What DistributedDataParallel says of a model some of whose parameters get no gradient, or get it twice."""
_STORE_ERRORS = {"DistNetworkError", "DistStoreError"}
_REJECTED_ARGUMENTS = 2  # argparse's exit code
_IN_ARGPARSE = re.compile(r'argparse\.py", line \d+, in (error|exit)\b')
_DURING = "\nDuring handling of the above exception, another exception occurred:\n"
_STOPS = {
    Ending.DRAIN: (OutcomeClass.PREEMPTED, "on request"),
    Ending.RESIZE: (OutcomeClass.PREEMPTED, "to continue on other devices"),
    Ending.GROW: (OutcomeClass.PREEMPTED, "to continue on more devices"),
    Ending.SHUTDOWN: (OutcomeClass.PREEMPTED, "because the job's keeper got SIGTERM, as at a shutdown of the machine"),
    Ending.CANCEL: (OutcomeClass.CANCELLED, "on request"),
    Ending.TIME_LIMIT: (OutcomeClass.CANCELLED, "at the job's time limit"),
}
_STOPS_ON_NODES = {Ending.SHUTDOWN: "before the end of its Slurm job", Ending.GROW: "to continue on more nodes"}


def diagnose(result: AttemptResult) -> Outcome:
    """The outcome of an attempt."""
    if result.ending.is_stop or (result.ending is Ending.DONE and result.drained):
        return _stopped(result)
    if result.ending is Ending.DONE:
        return _success(result)
    if (hang := result.hang) is not None:
        who = hang.culprit
        message = f"No progress for {hang.seconds:.0f} s: {who.description}."
        position = {"rank": who.rank, "file": who.file, "line": who.line}
        return _outcome(result, OutcomeClass.HANG, message, evidence=hang.evidence, **position)
    if result.start_error is not None:
        klass, retryable = OutcomeClass.LAUNCH_ERROR, result.start_is_retryable
        return _outcome(result, klass, result.start_error, retryable=retryable)
    if result.ending is Ending.HOST_LOST:
        return _host_lost(result)
    if result.ending is Ending.LAUNCH_STALLED:
        return _launch_stalled(result)
    if result.agent_signal is not None:
        name = signal_name(result.agent_signal)
        message = f"The {_agent(result)} was killed by {name}, and its ranks with it."
        return _outcome(result, OutcomeClass.SIGNAL, message, signal=name)
    culprit = root_cause(result.ranks.values())
    if culprit is None or (is_cascade(culprit) and len(result.ranks) < result.world_size):
        return _launch_error(result)  # a rank that had not started caused what the others followed
    return _failed_rank(culprit, result)


def _failed_rank(culprit: RankResult, result: AttemptResult) -> Outcome:
    """Outcome by ``culprit``, the rank that failed first of its own accord, or was the first to notice a failure."""
    if is_cascade(culprit) and (hiding := _first_that_hides(result.ranks.values())) is not None:
        return _hidden_outcome(*hiding, result)
    report = _timeout_or_abort(culprit)
    if report is not None and (culprit.error is None or report.is_timeout):
        return _ended_by_watchdog(culprit, report, result)
    if culprit.error is not None:
        describe = _lost_connections if is_cascade(culprit) else _exception_outcome
        return describe(culprit, culprit.error, result)
    return _ranks_stopped(result) if culprit.stopped_by_torchrun else _process_outcome(culprit, result)


def root_cause(ranks: Iterable[RankResult]) -> RankResult | None:
    """The rank that failed first of its own accord, else the first cascade, else None where no rank failed."""
    failed = [rank for rank in ranks if rank.failed]
    own = [rank for rank in failed if not is_cascade(rank)]
    return min(own or failed, key=lambda rank: (rank.failed_at, rank.rank), default=None)


def final_ending(ending: Ending, stop: Ending | None, ranks: Collection[RankResult], world_size: int) -> Ending:
    """Return ``ending``, or another one that the last events have shown; ``stop`` is what was requested meanwhile.

    A script may save and exit with code 0 when it gets SIGTERM, from the keeper or from a machine that shuts down:
    then its ranks have finished only where their ``Run`` reports so. A machine that goes down sends SIGTERM to all.
    """
    stop = ending if ending.is_stop else stop
    if len(ranks) == world_size and all(rank.finished and not rank.drained for rank in ranks):
        was_signalled = ending.is_stop or stop is Ending.SHUTDOWN
        is_complete = all(rank.completed for rank in ranks)
        return stop if stop is not None and was_signalled and not is_complete else Ending.DONE
    return stop if ending is Ending.RANK_FAILED and stop is not None and ended_by_sigterm(ranks) else ending


def ended_by_sigterm(ranks: Iterable[RankResult]) -> bool:
    """True where, as far as is known yet, only SIGTERM has ended the ranks that failed, and what they followed."""
    failed = [rank for rank in ranks if rank.failed]
    own = [rank for rank in failed if not is_cascade(rank)]
    known = [rank for rank in own or failed if rank.explained or rank.error is not None]
    return bool(known or not failed) and all(rank.signal == signal.SIGTERM and rank.error is None for rank in known)


def is_cascade(rank: RankResult) -> bool:
    """True where a failure looks like the consequence of another's.

    A lost connection, torchrun's SIGTERM, or the abort by which NCCL's watchdog ends a rank that waits for others; not
    where it names an error of the rank's own GPU.
    """
    if rank.error is not None:
        return is_comm_error(rank.error)
    return rank.stopped_by_torchrun or (rank.watchdog is not None and device_error_in(rank.watchdog) is None)


def has_timed_out(rank: RankResult) -> bool:
    """True where gloo or NCCL's watchdog has ended a collective that took too long: the rank waited, as in a hang."""
    report = _timeout_or_abort(rank)
    return report is not None and report.is_timeout


def _timeout_or_abort(rank: RankResult) -> WatchdogReport | None:
    """Report of a watchdog, which aborts the process or has the collective raise, or of a collective of gloo."""
    if rank.watchdog or rank.error is None or not is_comm_error(rank.error):
        return watchdog_report(rank.watchdog or "")
    return watchdog_report(rank.error.message) or gloo_timeout(rank.error.message)


def _first_that_hides(ranks: Iterable[RankResult]) -> tuple[RankResult, RankError, RankError] | None:
    """The first rank whose lost connection hides its own exception: the rank, its error, and that cause."""
    failed = sorted((rank for rank in ranks if rank.failed), key=lambda rank: rank.failed_at)
    errors = [(rank, rank.error) for rank in failed if rank.error is not None]
    return next(((rank, each, cause) for rank, each in errors if (cause := hidden_cause(each)) is not None), None)


def signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


def _outcome(
    result: AttemptResult, klass: OutcomeClass, message: str, *, evidence: dict[str, Any] | None = None, **fields: Any
) -> Outcome:
    """Make an outcome with what the other ranks did as evidence, so that a reader can check the diagnosis."""
    cascades = [rank.rank for rank in result.ranks.values() if rank.failed and is_cascade(rank)]
    found: dict[str, Any] = {"ending": result.ending, "cascades": cascades}
    if result.survivors:
        found["survivors"] = result.survivors
    if result.gpu_memory_held:
        found["gpu_memory_still_held"] = result.gpu_memory_held
    return Outcome(klass, message, evidence={**found, **(evidence or {})}, **fields)


def _success(result: AttemptResult) -> Outcome:
    unmarked = sorted(rank.rank for rank in result.ranks.values() if not rank.done)
    if not unmarked:
        return _outcome(result, OutcomeClass.SUCCESS, "Every rank finished.")
    who = f"rank {unmarked[0]}" if len(unmarked) == 1 else f"{len(unmarked)} of {result.world_size} ranks"
    message = f"Every rank finished; {who} ended with exit code 0 before the end of the script (by os._exit or exec)."
    return _outcome(result, OutcomeClass.SUCCESS, message, evidence={"unmarked": unmarked})


def _stopped(result: AttemptResult) -> Outcome:
    """Outcome of a stop on request. After SIGTERM exit code 0 may mean "saved and stopped", not "finished"."""
    klass, why = _STOPS.get(result.ending, _STOPS[Ending.DRAIN])
    if result.hosts:
        why = _STOPS_ON_NODES.get(result.ending, why)
    if result.drained:
        message = f"Saved and stopped {why}." if result.unsaved_step is None else _stopped_unsaved(result, why)
    elif result.exited_incomplete:
        message = (
            f"Stopped {why}: every rank exited with code 0 after SIGTERM, which does not show that the training was "
            "finished. When the job is resumed, it continues from what the script has saved and loads."
        )
    elif klass is OutcomeClass.PREEMPTED:
        message = f"Stopped {why}; the script did not report that it saved."
    else:
        message = f"Stopped {why}."
    if klass is OutcomeClass.PREEMPTED and result.stop_reason is not None:
        message += f" {result.stop_reason}"
    return _outcome(result, klass, message, retryable=klass is OutcomeClass.PREEMPTED)


def _stopped_unsaved(result: AttemptResult, why: str) -> str:
    latest = "there is none" if result.snapshot_step is None else f"the latest is of step {result.snapshot_step}"
    return f"Stopped {why}; the snapshot of step {result.unsaved_step} could not be written: {latest}."


def _agent(result: AttemptResult) -> str:
    return "agent" if result.launch is LaunchMode.PROCESS else "torchrun agent"


def _ranks_stopped(result: AttemptResult) -> Outcome:
    message = (
        "torchrun stopped its ranks by SIGTERM though none had failed: torchrun itself was signalled, or a rank "
        "crashed after it was done; the end of its log is in the evidence."
    )
    evidence = {"agent_log": result.agent_log_tail}
    return _outcome(result, OutcomeClass.SIGNAL, message, signal="SIGTERM", evidence=evidence)


def _host_lost(result: AttemptResult) -> Outcome:
    """Outcome where a node of a cluster was lost: what the other nodes' ranks noticed of it are cascades."""
    message = lost_nodes_message(result.lost_nodes)
    return _outcome(result, OutcomeClass.HOST_LOST, message, evidence={"lost_nodes": result.lost_nodes})


def lost_nodes_message(lost: Mapping[str, str]) -> str:
    """Sentence about lost nodes; ``lost``: how that was noticed, by host."""
    text = "; ".join(f"node {host} was lost: {how}" for host, how in lost.items())
    return f"{text[:1].upper()}{text[1:]}." if text else "A node was lost."


def _launch_stalled(result: AttemptResult) -> Outcome:
    missing = [rank for rank in range(result.world_size) if rank not in result.ranks]  # none, if the last came just now
    first = f" (the first of them is rank {missing[0]})" if missing else ""
    message = (
        f"After ten minutes {len(missing) or 'some'} of {result.world_size} ranks had not started{first}; the end of "
        f"the {_agent(result)}'s log is in the evidence."
    )
    evidence = {"late": missing, "agent_log": result.agent_log_tail}
    return _outcome(result, OutcomeClass.LAUNCH_ERROR, message, evidence=evidence)


def _launch_error(result: AttemptResult) -> Outcome:
    code, evidence = result.agent_exit_code, {"agent_log": result.agent_log_tail}
    message = (
        f"The {_agent(result)} ended with exit code {code} after {len(result.ranks)} of {result.world_size} ranks had "
        "started; the end of its log is in the evidence."
    )
    return _outcome(result, OutcomeClass.LAUNCH_ERROR, message, exit_code=code, evidence=evidence)


def _process_outcome(rank: RankResult, result: AttemptResult) -> Outcome:
    """Outcome by a rank that ended without an exception."""
    who, code = f"Rank {rank.rank}", rank.exit_code
    if rank.oom is not None:
        message, evidence = f"{who} was killed by the kernel's out-of-memory killer.", {"kernel": rank.oom}
        return _outcome(result, OutcomeClass.OOM, message, rank=rank.rank, signal="SIGKILL", evidence=evidence)
    if rank.signal is not None:
        name = signal_name(rank.signal)
        if result.missing_peer is not None:  # gloo aborts a rank that gets what it has not requested
            return _mismatch(result.missing_peer, result, {"first_error": f"{who} was aborted by gloo ({name})."})
        return _killed(rank, name, result)
    if result.disk_full:
        message = f"{who} ended while the disk of its run directory was full, and could not record why."
        return _outcome(result, OutcomeClass.DISK_FULL, message, rank=rank.rank, exit_code=code)
    shown = "an unknown exit code" if code is None else f"exit code {code}"
    message = f"{who} ended with {shown} before its script was done."
    return _outcome(result, OutcomeClass.USER_ERROR, message, rank=rank.rank, exit_code=code)


def _killed(rank: RankResult, name: str, result: AttemptResult) -> Outcome:
    """Outcome by a rank that a signal killed, with the line at which it has crashed, where that is known."""
    message, position, evidence = f"Rank {rank.rank} was killed by {name}", {}, {}
    if (crash := rank.crash) is not None:
        evidence = {"stack": crash.stack}
        if crash.file is not None:
            message += f" at {crash.file}:{crash.line}"
            position = {"file": crash.file, "line": crash.line}
    reason = "it had used up its limit of processor time" if name == "SIGXCPU" else rank.signal_reason
    if reason is not None:
        message += f", since {reason} (RLIMIT_CPU, `ulimit -t`): raise it where it is set, in the script or before it"
    return _outcome(
        result, OutcomeClass.SIGNAL, f"{message}.", rank=rank.rank, signal=name, evidence=evidence, **position
    )


def _lost_connections(first: RankResult, error: RankError, result: AttemptResult) -> Outcome:
    """Outcome where all ranks failed because they lost each other: it names the one that left, not the loss."""
    evidence = {"traceback": error.traceback, "first_error": f"Rank {first.rank} {_describe(error)}"}
    if (xid := hardware_xid(result.kernel_log, {rank.pid for rank in result.ranks.values()})) is not None:
        message = f"A GPU failed, and the ranks lost each other: {xid}. It does not count as a failure of the script."
        return _outcome(result, OutcomeClass.COMM, message, evidence={**evidence, "hardware": xid})
    if result.missing_peer is not None:
        if result.missing_peer.rank == first.rank and error.exception in _STORE_ERRORS:
            return _exception_outcome(first, error, result)  # it left the others for a store of its own
        return _mismatch(result.missing_peer, result, evidence)
    where = "" if error.file is None else f" at {error.file}:{error.line}"
    message = (
        f"The ranks lost their connection to each other, and none has a cause of its own; rank {first.rank} was the "
        f"first to notice it{where}."
    )
    fields = {"rank": first.rank, "exception": error.exception, "file": error.file, "line": error.line}
    return _outcome(result, OutcomeClass.COMM, message, evidence=evidence, exit_code=first.exit_code, **fields)


def _ended_by_watchdog(first: RankResult, report: WatchdogReport, result: AttemptResult) -> Outcome:
    """Outcome by a rank whose GPU has failed, or that has waited: then it names the rank that kept it waiting."""
    how = "timed out in gloo" if report.library == "gloo" else "was ended by NCCL's watchdog"
    ended = f"Rank {first.rank} {how}"
    if (device := device_error_in(report.line)) is not None:
        evidence = _hardware(first, device, report.line, result)
        message = f"{ended}: {report.line}. {device.advice}"
        return _outcome(result, device.klass, message, rank=first.rank, evidence=evidence)
    evidence = {"first_error": f"{ended}: {report.line}"}
    if not report.is_timeout:
        message = (
            f"The ranks lost each other, and none has a cause of its own; rank {first.rank} was the first to notice."
        )
        return _outcome(result, OutcomeClass.COMM, message, rank=first.rank, evidence=evidence)
    who = result.missing_peer or Culprit(None, f"rank {first.rank} waited for the others")
    after = "" if report.seconds is None else f" after {report.seconds:.0f} s"
    position = {"rank": who.rank, "file": who.file, "line": who.line}
    message = f"A collective of {report.library} timed out{after}: {who.description}."
    return _outcome(result, OutcomeClass.HANG, message, evidence=evidence, **position)


def _hardware(rank: RankResult, device: DeviceError, text: str, result: AttemptResult) -> dict[str, Any]:
    """Evidence that the GPU of ``rank`` has failed: the text shows it, or the driver in the kernel's log."""
    xid = hardware_xid(result.kernel_log, {rank.pid})
    failed = device.is_hardware or xid is not None
    return {"hardware": f"{_gpu_of(rank, result)}: {xid or text.partition(chr(10))[0]}"} if failed else {}


def _mismatch(who: Culprit, result: AttemptResult, evidence: dict[str, Any]) -> Outcome:
    message = f"The collectives of the ranks do not match: {who.description}."
    position = {"rank": who.rank, "file": who.file, "line": who.line}
    return _outcome(result, OutcomeClass.USER_ERROR, message, evidence=evidence, **position)


def _exception_outcome(rank: RankResult, error: RankError, result: AttemptResult) -> Outcome:
    device, message = device_error(error), f"Rank {rank.rank} {_describe(error)}"
    evidence: dict[str, Any] = {"traceback": error.traceback}
    if device is not None:
        message += f"{'' if message.endswith('.') else '.'} {device.advice}"
        evidence |= _hardware(rank, device, error.message, result)
    return _outcome(
        result,
        class_of(error),
        message,
        rank=rank.rank,
        exit_code=rank.exit_code if error.exit_code is None else error.exit_code,
        exception=error.exception,
        file=error.file,
        line=error.line,
        retryable=not (_is_certain_bug(error) or _is_certain_without_progress(error, result.progress)),
        evidence=evidence,
    )


def _hidden_outcome(rank: RankResult, error: RankError, cause: RankError, result: AttemptResult) -> Outcome:
    where = "" if error.file is None else f" at {error.file}:{error.line}"
    own = error.traceback.rpartition(_DURING)[0] or error.traceback
    outcome = _exception_outcome(rank, replace(cause, traceback=own), result)
    stop = "" if outcome.message.endswith(".") else "."
    return replace(outcome, message=f"{outcome.message}{stop} While it was handled, a collective{where} failed.")


def _gpu_of(rank: RankResult, result: AttemptResult) -> str:
    """Name the GPUs of a rank: those of all ranks are listed in their order, where every node has reported its own."""
    each, rest = divmod(len(result.gpus), result.world_size)
    if not each or rest:
        return f"the GPU of rank {rank.rank}"
    own = result.gpus[rank.rank * each : (rank.rank + 1) * each]
    return f"GPU{'s' if each > 1 else ''} {', '.join(own)}"


def _describe(error: RankError) -> str:
    where = "" if error.file is None else f" at {error.file}:{error.line}"
    first_line = error.message.splitlines()[0] if error.message else ""
    if error.exit_code is None:
        return f"raised {error.exception}{where}" + (f": {first_line}" if first_line else ".")
    if first_line in ("", str(error.exit_code)):  # argparse, for one, explains on stderr what is wrong, and exits
        return f"exited with code {error.exit_code}{where}; the end of its output may show why."
    return f"exited with code {error.exit_code}{where}: {first_line}"


def _is_certain_bug(error: RankError) -> bool:
    """True where every attempt would end like this one: the script cannot be imported, or rejects its arguments."""
    rejects_arguments = error.exception == "SystemExit" and error.exit_code == _REJECTED_ARGUMENTS
    return error.exception in _CERTAIN_BUGS or (rejects_arguments and bool(_IN_ARGPARSE.search(error.traceback)))


def _is_certain_without_progress(error: RankError, progress: SavedProgress) -> bool:
    """True for a model that fails in its first steps; one that has saved progress may only fail with some data."""
    return progress is not SavedProgress.KNOWN and error.message.startswith(_CERTAIN_AT_THE_START)
