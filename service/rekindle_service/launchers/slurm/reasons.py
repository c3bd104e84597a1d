"""Slurm's states and reasons in plain words."""

from rekindle.contract.run_dir.leader_records import LeaderBeat
from rekindle_service.launchers.slurm.queue_listing import SlurmJob, Stage

MAX_CLOCK_DIFFERENCE = 2.0  # seconds, beyond which a person is warned

_HELD = "it is held in Slurm: scontrol release {id} lets it start"
_LIMIT = "the jobs of {whose} have reached a limit: "
_REASONS = {
    "": "Slurm has not looked at it yet",
    "None": "Slurm has not looked at it yet",
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
    "JobArrayTaskLimit": "as many tasks of its array run as may",
    "MaxMemPerLimit": "it requests more memory than is allowed",
    "FedJobLock": "for the other clusters of its federation",
    "NodeNotAvail": "for nodes that are down, drained or reserved",
    "SchedDefer": "Slurm starts no job at once; it is looked at in the next round",
    "launch failed requeued held": "Slurm could not start it on its node, and holds it",
    "JobLaunchFailure": "Slurm could not start it on its node",
    "NonZeroExitCode": "its keeper ended with an error",
    "TimeLimit": "its time limit was reached",
    "OutOfMemory": "it used more memory than it had requested",
}
_SUBJECTS = {"QOS": "its quality of service", "Assoc": "its account", "Association": "its account", "User": "its user"}
_LIMITED = (
    ("Cpu", "processors"), ("CPU", "processors"), ("Node", "nodes"), ("GRES", "GPUs"), ("Gres", "GPUs"),
    ("Mem", "memory"), ("Submit", "jobs submitted"), ("WallDuration", "time"), ("Wall", "time"), ("Time", "time"),
    ("Jobs", "jobs at a time"), ("Job", "jobs at a time"), ("Billing", "billing"), ("BB", "burst buffers"),
    ("License", "licences"),
)  # fmt: skip
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
    return f"Slurm job {job.id} {verb}: {words.format(id=job.id)}"


def ending_words(job: SlurmJob) -> str:
    """``Slurm job 17 has ended: one of its nodes failed``."""
    words = _ENDINGS.get(job.state, f"its state is {job.state}")
    if job.reason == "JobLaunchFailure":
        words = _REASONS[job.reason]
    return f"Slurm job {job.id} has ended: {words}"


def reason_words(reason: str) -> str:
    """Of ``%r`` of squeue; a reason that nobody has translated is quoted."""
    known = reason.partition(",")[0].strip("() ")  # ReqNodeNotAvail, UnavailableNodes:n1
    if known in _REASONS:
        nodes = reason.partition("UnavailableNodes:")[2].strip("() ")
        return _REASONS[known] + (f" ({nodes})" if nodes else "")
    return _limit_words(known) or f"Slurm's reason is {reason[:100]}"


def _limit_words(reason: str) -> str | None:
    """Of QOSMaxJobsPerUserLimit, AssocGrpCpuLimit and about a hundred others."""
    if "Max" not in reason and "Grp" not in reason and "Min" not in reason:
        return None
    whose = next((words for prefix, words in _SUBJECTS.items() if reason.startswith(prefix)), "its group")
    if "PerUser" in reason:
        whose = f"its user in {whose}" if whose != "its user" else whose
    what = next((words for part, words in _LIMITED if part in reason), "what it may use")
    return _LIMIT.format(whose=whose) + f"{what} ({reason})"


def running_words(job: SlurmJob, beat: LeaderBeat | None, ahead: float) -> str | None:
    """What is wrong with the nodes of a running job, in sentences; ``ahead``: seconds of its leading keeper's times."""
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
