"""What a job for Slurm must satisfy, and the memory that it requests where it leaves that open.

Whether the cluster has what it requests, Slurm itself is asked.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Protocol

from rekindle.contract.job import JobSpec, LaunchMode, LinkRule, SlurmOptions, TargetKind
from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.run_dir.attempt_samples import UsageSample
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.job_wording import job_label, like_name
from rekindle_service.jobs.submission import FieldError
from rekindle_service.run_readers.usage import read_usage
from rekindle_service.store import Store
from rekindle_service.store.job_conditions import JobConditions

_GIB = 1 << 30
_COMPARED_JOBS = 20  # latest ones whose names are alike
_MIN_SAMPLES = 3  # of an attempt whose memory says something of others: the first is taken before torch is loaded
_MAYBE_OUT_OF_MEMORY = (OutcomeClass.OOM, OutcomeClass.SIGNAL, OutcomeClass.KEEPER_LOST, OutcomeClass.HOST_LOST)
"""What Slurm ends by its limit of memory may look like any of these."""


class Cluster(Protocol):
    """See ``launchers.slurm.cluster``."""

    def device(self, options: SlurmOptions) -> str:
        """ "cuda" where the nodes have GPUs, else "cpu"."""

    def errors(self, spec: JobSpec) -> list[FieldError]:
        """What Slurm objects to; nothing where it does not answer."""


NO_SLURM = "a server needs Slurm's commands (sbatch, squeue, scancel, scontrol, srun, sinfo) on its PATH"
ISOLATED = "jobs on Slurm run as the user of the server, which job_users and sandbox forbid"

NoCluster = str
"""Why a server has none, as the hint of an error."""

IN_EXTRA = {"mem": r"--mem(?!-bind)", "gres": r"--gres(?!-)", "gpus_per_node": r"--gpus"}
"""The options of sbatch that say what these fields do, as patterns of their beginnings."""


def in_extra(options: SlurmOptions, name: str) -> str | None:
    """The option among the further ones that says what the field ``name`` does."""
    return next((option for option in options.extra if re.match(IN_EXTRA[name], option)), None)


def cluster_rules(spec: JobSpec, extra_error: Callable[[str], str | None] = lambda _: None) -> Iterator[FieldError]:
    """The rules that do not depend on the cluster. ``extra_error``: the rule that an option of sbatch violates."""
    yield from _size_rules(spec)
    if spec.device_names:
        hint = "Slurm chooses the GPUs of a job on its nodes"
        yield FieldError("device", 'must be "cpu", "cuda" or "auto" for a job on Slurm', spec.device, hint)
    if "CUDA_VISIBLE_DEVICES" in spec.env:
        rule = "cannot be set for a job on Slurm"
        yield FieldError("env.CUDA_VISIBLE_DEVICES", rule, "", "Slurm sets it: choose device and devices_per_rank")
    if spec.links is not LinkRule.PREFERRED:
        hint = "request nodes whose GPUs are linked with slurm.constraint"
        yield FieldError("links", "must be omitted for a job on Slurm", spec.links, hint)
    if not PurePosixPath(spec.python).is_absolute():
        yield FieldError("python", "must be an absolute path, the same on all nodes", spec.python)
    for option in spec.slurm.extra if spec.slurm is not None else ():
        if (rule_of_option := extra_error(option)) is not None:
            yield FieldError("slurm.extra", rule_of_option, option, "such as --cpus-per-task=8")
    yield from _double_rules(spec.slurm or SlurmOptions())


def _double_rules(options: SlurmOptions) -> Iterator[FieldError]:
    for name in IN_EXTRA:
        value, option = getattr(options, name), in_extra(options, name)
        if value is not None and option is not None:
            yield FieldError(
                f"slurm.{name}", f"is given twice, also as {option} in slurm.extra", value, "omit one of them"
            )


def _size_rules(spec: JobSpec) -> Iterator[FieldError]:
    nodes = {"min": spec.min_nodes, "max": spec.nodes}
    ranks = {"min": spec.min_ranks, "max": spec.max_ranks}
    if not 1 <= spec.min_nodes <= spec.nodes:
        yield FieldError("nodes", "must be at least 1, and min at most max", nodes)
    elif spec.max_ranks % spec.nodes:
        hint = f"give a multiple of {spec.nodes}: each node runs as many ranks"
        yield FieldError("ranks", f"must be a multiple of the {spec.nodes} nodes", ranks, hint)
    elif spec.min_ranks != spec.ranks_per_node * spec.min_nodes:
        hint = f"with {spec.ranks_per_node} ranks on each node it is {spec.ranks_per_node * spec.min_nodes}"
        yield FieldError("ranks", f"min must be that of {spec.min_nodes} nodes", ranks, hint)
    if spec.launch is LaunchMode.PROCESS and spec.nodes > 1:
        hint = 'one process runs on one node; launch: "torchrun" starts one per rank'
        yield FieldError("nodes", "must be 1, since the job is one process", nodes, hint)


Workload = tuple[str | None, str, TargetKind, str, int]


def workload(owner: str | None, spec: JobSpec, target: str) -> Workload:
    """What is the same of jobs that need about as much memory on a node. ``target``: as in the copy of the code."""
    return owner, like_name(spec.name), spec.kind, target, spec.ranks_per_node


def usual_memory(store: Store, home: Home, wanted: Workload) -> tuple[str, str] | None:
    """``slurm.mem`` for such a job and the sentence that says why; None where the latest ones do not show it."""
    _, name, *_, ranks_per_node = wanted
    part = max(name.split("#"), key=len)
    ended = JobConditions(frozenset({JobState.SUCCEEDED, JobState.FAILED}))
    for job in store.lists.jobs(ended, name_part=part, limit=_COMPARED_JOBS):
        if workload(job.owner, job.spec, job.spec.target) != wanted:
            continue
        if job.state is JobState.FAILED:
            if (job.outcome or {}).get("class") in _MAYBE_OUT_OF_MEMORY:
                return None
            continue
        run_dir = home.run_dir(job.id)
        samples = list(read_usage(run_dir.root, run_dir.attempt(job.attempt).usage))
        if len(samples) >= _MIN_SAMPLES:
            used = _node_peak(samples, ranks_per_node) / _GIB
            asked = math.ceil(2 * used + 1)
            label = job_label(job.name, job.number)
            why = f"twice the {used:.1f} GiB that {label} used, and 1 GiB more"
            return f"{asked}G", (
                f"Slurm is asked for {asked} GiB of memory on each node: {why}. Choose another amount with slurm.mem "
                "(--slurm-mem)."
            )
    return None


def _node_peak(samples: Sequence[UsageSample], ranks_per_node: int) -> int:
    """Most bytes that the ranks of one node used at once."""
    used: Counter[tuple[float, int]] = Counter()
    for sample in samples:
        for rank in sample.ranks:
            used[sample.at, rank.rank // ranks_per_node] += rank.rss_bytes
    return max(used.values(), default=0)
