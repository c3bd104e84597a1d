"""Slurm's states and reasons in plain words."""

import re

from rekindle.contract.run_dir.coordinator_records import CoordinatorBeat
from rekindle_service.launch.slurm.slurm_commands import SlurmJob, Stage

MAX_CLOCK_DIFFERENCE = 2.0  # seconds, beyond which a person is warned

_HELD = "it is held in Slurm: scontrol release {id} lets it start"
_LIMIT = "the jobs of {whose} have reached a limit: "
_REASONS = {
    "": "Slurm has not looked at it yet",
    "Resources": "for nodes that are in use now",
    "Priority": "jobs of higher priority come first",
    "Dependency": "for a Slurm job that it depends on",
    "DependencyNeverSatisfied": "for a Slurm job that has failed: it never starts; cancel this job",
    "BeginTime": "for the time before which Slurm does not start it",
    "JobHeldUser": _HELD,
    "JobHeldAdmin": "it is held by an administrator of Slurm, who alone can release it",
    "ReqNodeNotAvail": "for nodes that are down, drained or reserved",
    "Reservation": "for its reservation to begin",
    "ReservationDeleted": "its reservation was deleted: it never starts; cancel this job",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition does not start jobs now",
    "PartitionNodeLimit": "it requests more nodes than its partition allows: it never starts; cancel this job",
    "PartitionTimeLimit": "it requests more time than its partition allows: it never starts; cancel this job",
    "PartitionConfig": "its partition does not allow what it requests",
    "AccountNotAllowed": "its partition does not accept its account",
    "QOSNotAllowed": "its partition does not accept its quality of service",
    "BadConstraints": "no node satisfies what it requests",
    "NodeDown": "a node that it needs is down",
    "Licenses": "for a licence that is in use",
    "Cleaning": "Slurm cleans up after its last start",
    "Prolog": "the nodes are being prepared",
    "InactiveLimit": "Slurm counts it as inactive",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its quality of service is not valid",
    "FrontEndDown": "no front-end node is available",
    "JobArrayTaskLimit": "its array already runs as many tasks as it may",
    "MaxMemPerLimit": "it requests more memory than is allowed",
    "FedJobLock": "for the other clusters of its federation",
    "NodeNotAvail": "for nodes that are down, drained or reserved",
    "SchedDefer": "Slurm starts no job at once; it is looked at in the next round",
    "Nodes required for job are DOWN": "for nodes that are down, drained, or reserved for jobs of higher priority",
    "Constraints": "no node satisfies what it requests",
    "ReservationInvalid": "its reservation is not valid",
    "AccountingPolicy": "a limit on accounts or users has been reached",
    "QOSUsageThreshold": "its account has used more of its share than its quality of service allows",
    "JobHoldMaxRequeue": f"Slurm has queued it again too often; {_HELD}",
    "job requeued in held state": _HELD,
    "job requeued in special exit state": _HELD,
    "user env retrieval failed requeued held": f"Slurm could not read the environment of its user; {_HELD}",
    "BurstBufferResources": "for room in a burst buffer",
    "BurstBufferStageIn": "for its data to be copied to a burst buffer",
    "BurstBufferOperation": "an operation of its burst buffer has failed",
    "PowerNotAvail": "for electric power, which is in use now",
    "PowerReserved": "for electric power, which is reserved",
    "SystemFailure": "Slurm, a file system or the network has failed",
    "RaisedSignal": "its keeper was ended by a signal",
    "DeadLine": "its deadline in Slurm was reached",
    "launch failed requeued held": "Slurm could not start it on its node, and holds it",
    "JobLaunchFailure": "Slurm could not start it on its node",
    "NonZeroExitCode": "its keeper ended with an error",
    "TimeLimit": "its time limit was reached",
    "OutOfMemory": "it used more memory than it had requested",
}
_SUBJECTS = {"QOS": "its quality of service", "Assoc": "its account", "Association": "its account"}
_LIMITED = (
    ("Cpu", "processors"), ("CPU", "processors"), ("Node", "nodes"), ("GRES", "GPUs"), ("Gres", "GPUs"),
    ("Mem", "memory"), ("Submit", "jobs submitted"), ("Wall", "time"), ("Time", "time"), ("Job", "jobs at a time"),
    ("Billing", "billing"), ("BB", "burst buffers"), ("License", "licences"), ("Energy", "energy"),
)  # fmt: skip
_LIMIT_NAME = re.compile(
    r"(QOS|Association|Assoc|)(Grp|Max|Min|)(\w*?)(Per(?:Job|Node|User|Account)|)(?:Limit|NotSatisfied|)"
)
_STATES = {
    "CONFIGURING": "its nodes are being prepared",
    "REQUEUE_HOLD": _HELD,
    "SPECIAL_EXIT": _HELD,
    "REQUEUED": "Slurm has queued it again",
    "SUSPENDED": "Slurm has suspended it",
    "STOPPED": "Slurm has stopped it",
}
_ENDINGS = {
    "COMPLETED": "its keeper has ended",
    "FAILED": "its keeper ended with an error",
    "CANCELLED": "it was cancelled in Slurm",
    "TIMEOUT": "its time limit in Slurm was reached",
    "NODE_FAIL": "one of its nodes failed",
    "PREEMPTED": "it was displaced by a job of higher priority",
    "BOOT_FAIL": "its nodes could not be started",
    "DEADLINE": "its deadline in Slurm was reached",
    "OUT_OF_MEMORY": "it used more memory than it had requested",
}


def waiting_words(job: SlurmJob) -> str:
    """``Slurm job 17 waits: for nodes that are in use now``."""
    words = _STATES.get(job.state) or reason_words(job.reason)
    verb = "does not run" if job.stage is Stage.STOPPED else "waits"
    return f"Slurm job {job.id} {verb}: {words.replace('{id}', str(job.id))}"


def ending_words(job: SlurmJob) -> str:
    """``Slurm job 17 has ended: one of its nodes failed``."""
    if job.stage is not Stage.ENDED:
        return f"Slurm is ending job {job.id}: it stops what still runs on its nodes"
    words = _ENDINGS.get(job.state, f"its state is {job.state}")
    if job.reason == "JobLaunchFailure":
        words = _REASONS[job.reason]
    return f"Slurm job {job.id} has ended: {words}"


def reason_words(reason: str) -> str:
    """Translate ``%r`` of squeue; a reason that nobody has translated is quoted."""
    known, _, rest = reason.strip("() ").partition(", ")
    if known in _REASONS:  # ReqNodeNotAvail, UnavailableNodes:n1
        detail = rest.removeprefix("UnavailableNodes:") if known == "ReqNodeNotAvail" else ""
        return _REASONS[known] + (f" ({detail})" if detail else "")
    return _limit_words(known) or f"Slurm's reason is {reason[:100]}"


def _limit_words(reason: str) -> str | None:
    """Translate QOSMaxJobsPerUserLimit, AssocGrpCpuLimit and about a hundred others."""
    match = _LIMIT_NAME.fullmatch(reason)
    if match is None or not (match[1] or match[2]):
        return None
    owner, kind, name, per = match.groups()
    what = next((words for part, words in _LIMITED if part in name), "what it may use") + f" ({reason})"
    whose = _SUBJECTS.get(owner, _SUBJECTS["QOS"])
    if kind == "Min":
        return f"it requests less than {whose} requires: {what}"
    if per in ("PerJob", "PerNode"):
        return f"it requests more than {whose} allows {'a job' if per == 'PerJob' else 'on a node'}: {what}"
    if per:
        whose = f"its {per.removeprefix('Per').lower()} in {whose}"
    return _LIMIT.format(whose=whose) + what


def running_words(job: SlurmJob, beat: CoordinatorBeat | None, ahead: float) -> str | None:
    """What is wrong with the nodes of a running job, in sentences; ``ahead``: seconds of its coordinator's times."""
    if beat is None:
        return None
    words, missing = [], {host: reason for host, reason in beat.missing.items() if host in job.hosts}
    if missing:
        named = "; ".join(f"{host}: {reason}" for host, reason in missing.items())
        words.append(f"The job uses {len(job.hosts) - len(missing)} of its {len(job.hosts)} nodes ({named}).")
    clocks = {host: beat.clocks.get(host, 0.0) + ahead for host in job.hosts if host not in missing}
    for host, seconds in clocks.items():
        if abs(seconds) > MAX_CLOCK_DIFFERENCE:
            side = "ahead" if seconds > 0 else "behind"
            words.append(f"The clock of {host} is {abs(seconds):.0f} s {side}: run an NTP client there.")
    return " ".join(words) or None
