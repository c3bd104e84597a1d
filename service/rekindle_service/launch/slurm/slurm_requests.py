"""Requests for Slurm: the rules that they must satisfy, what Slurm itself objects to, and what they leave open.

The memory of a job that requests none is twice what the last job of its name used.
"""

import math
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path, PurePosixPath

from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import LaunchMode, LinkRule, SlurmOptions
from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.run_dir.attempt_samples import UsageSample
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.job_wording import job_label, like_name
from rekindle_service.launch.slurm.batch_job import extra_error, sbatch_options, stand_in_script
from rekindle_service.launch.slurm.slurm_commands import RefusedError, SlurmCommands, UnreachableError, job_name
from rekindle_service.run_readers.lanes import read_usage
from rekindle_service.store import Store
from rekindle_service.store.job_queries import JobConditions
from rekindle_service.store.tables import Job
from rekindle_service.submission import FieldError, Submission

_GIB = 1 << 30
_COMPARED_JOBS = 20  # latest ones whose names are alike
_MIN_SAMPLES = 3  # of an attempt whose memory says something of others: the first is taken before torch is loaded
_ENDED = JobConditions(frozenset({JobState.SUCCEEDED, JobState.FAILED}))
_MAYBE_OUT_OF_MEMORY = (OutcomeClass.OOM, OutcomeClass.SIGNAL, OutcomeClass.KEEPER_LOST, OutcomeClass.HOST_LOST)
"""What Slurm ends by its limit of memory may look like any of these."""

_IN_EXTRA = {"mem": r"--mem(?!-bind)", "gres": r"--gres(?!-)", "gpus_per_node": r"--gpus"}
"""The options of sbatch that say what these fields do, as patterns of their beginnings."""

_VALID_SECONDS = 10.0  # of an answer: the trials of an experiment ask the same
_MAX_ANSWERS = 1000
_HINTS = (
    ("account", re.compile(r"account", re.IGNORECASE), "sacctmgr show associations lists them"),
    ("partition", re.compile(r"partition", re.IGNORECASE), "sinfo lists them"),
    ("qos", re.compile(r"qos", re.IGNORECASE), "sacctmgr show qos lists them"),
    ("time", re.compile(r"--time|time limit", re.IGNORECASE), "such as 90 (minutes), 8:00:00 or 2-00:00:00"),
    ("constraint", re.compile(r"feature|constraint", re.IGNORECASE), "sinfo -o '%N %f' lists the features of nodes"),
)
_SIZE = re.compile(r"node configuration|node count|more processors|too many|not available|be satisfied", re.IGNORECASE)
_DEVICE = re.compile(r"generic resource|gres|gpu", re.IGNORECASE)


class SlurmRequests:
    """Thread-safe."""

    def __init__(self, commands: SlurmCommands, store: Store, home: Home) -> None:
        self._commands, self._store, self._home = commands, store, home
        self._answers: dict[tuple[str, ...], tuple[float, str | None]] = {}
        self._lock = threading.Lock()
        self._usual_memory = lru_cache(_MAX_ANSWERS)(self._find_usual_memory)

    def fill_in(self, submission: Submission) -> Submission:
        """Fill in device and memory where the request leaves them open, the memory only if Slurm has it."""
        spec, slurm = submission.spec, submission.spec.slurm or SlurmOptions()
        if spec.device == "auto":
            spec = replace(spec, device=self._device(slurm))
            submission = replace(submission, spec=spec)
        if slurm.mem is not None or _in_extra(slurm, "mem"):
            return submission
        like = _likeness(submission.owner, spec, submission.target_in_copy)
        found = self._usual_memory(like, self._store.queue_revision)  # the trials of an experiment are alike
        if found is None:
            return submission
        spec = replace(spec, slurm=replace(slurm, mem=found[0]), warnings=[found[1]])
        return submission if self.errors(spec) else replace(submission, spec=spec)

    def _device(self, options: SlurmOptions) -> str:
        """ "cpu" where Slurm does not answer, too."""
        try:
            return "cuda" if self._commands.has_gpus(options.partition) else "cpu"
        except UnreachableError:
            return "cpu"

    def errors(self, spec: JobSpec) -> list[FieldError]:
        """Slurm is asked only about what violates no rule."""
        return list(slurm_rules(spec)) or self._objections(spec)

    def _objections(self, spec: JobSpec) -> list[FieldError]:
        sentence = self._objection(spec)
        if sentence is None:
            return []
        slurm = spec.slurm or SlurmOptions()
        if slurm.mem is not None and self._objection(replace(spec, slurm=replace(slurm, mem=None))) is None:
            hint = "sinfo -o '%N %m' lists the memory of nodes in MiB"  # Slurm 22.05 itself does not name the memory
            return [FieldError("slurm.mem", f"Slurm refuses the job: {sentence}", slurm.mem, hint)]
        return [_field_error(spec, sentence)]

    def _objection(self, spec: JobSpec) -> str | None:
        """Slurm's own sentence."""
        key = tuple(_options(spec))
        with self._lock:
            known = self._answers.get(key)
        if known is not None and time.monotonic() - known[0] < _VALID_SECONDS:
            return known[1]
        try:
            with tempfile.TemporaryDirectory(prefix="rekindle-sbatch-") as directory:
                script = Path(directory) / "script.sh"
                script.write_text(stand_in_script())
                self._commands.test(key, script)
            sentence = None
        except RefusedError as error:
            sentence = None if error.temporary else str(error)
        except UnreachableError:
            return None
        with self._lock:
            if len(self._answers) >= _MAX_ANSWERS:
                self._answers.clear()
            self._answers[key] = time.monotonic(), sentence
        return sentence

    def _find_usual_memory(self, like: "_Likeness", _revision: int) -> tuple[str, str] | None:
        """``slurm.mem`` for such a job and the sentence that says why; None where the last one does not show it."""
        for job in self._store.lists.jobs(_ENDED, name_part=max(like[1].split("#"), key=len), limit=_COMPARED_JOBS):
            if _likeness(job.owner, job.spec, job.spec.target) != like:
                continue
            if job.state is JobState.FAILED:
                if (job.outcome or {}).get("class") in _MAYBE_OUT_OF_MEMORY:
                    return None
                continue
            run_dir = self._home.run_dir(job.id)
            samples = list(read_usage(run_dir.root, run_dir.attempt(job.attempt).usage))
            if len(samples) >= _MIN_SAMPLES:
                return _twice(_node_peak(samples, job.spec.ranks_per_node) / _GIB, job)
        return None


_Likeness = tuple[str | None, str, str, int]


def _likeness(owner: str | None, spec: JobSpec, target: str) -> _Likeness:
    """What is the same of jobs that need about as much memory on a node. ``target``: as in the copy of the code."""
    return owner, like_name(spec.name), target, spec.ranks_per_node


def _twice(used: float, job: Job) -> tuple[str, str]:
    """``used``: GiB."""
    asked = math.ceil(2 * used + 1)
    return f"{asked}G", (
        f"Slurm is asked for {asked} GiB of memory on each node: twice the {used:.1f} GiB that "
        f"{job_label(job.name, job.number)} used, and 1 GiB more. Choose another amount with slurm.mem (--slurm-mem)."
    )


def _node_peak(samples: Sequence[UsageSample], ranks_per_node: int) -> int:
    """Most bytes that the ranks of one node used at once."""
    used: Counter[tuple[float, int]] = Counter()
    for sample in samples:
        for rank in sample.ranks:
            used[sample.at, rank.rank // ranks_per_node] += rank.rss_bytes
    return max(used.values(), default=0)


def _options(spec: JobSpec) -> list[str]:
    """The options of sbatch as they will be, but for paths and name."""
    run_dir = RunDir(Path("/"))
    return sbatch_options(spec, job_name("0" * 10, 0), run_dir, run_dir.launch(0))


def _field_error(spec: JobSpec, sentence: str) -> FieldError:
    rule = f"Slurm refuses the job: {sentence}"
    options = spec.slurm or SlurmOptions()
    for name, pattern, hint in _HINTS:
        if pattern.search(sentence):
            return FieldError(f"slurm.{name}", rule, getattr(options, name), hint)
    if _DEVICE.search(sentence):
        named = next((name for name in ("gres", "gpus_per_node") if getattr(options, name) is not None), None)
        if named is not None:
            return FieldError(f"slurm.{named}", rule, getattr(options, named), "scontrol show nodes lists GPUs (Gres)")
        hint = "scontrol show nodes lists their GPUs (Gres); devices_per_rank and ranks give the number for each node"
        return FieldError("device", rule, spec.device, hint)
    if _SIZE.search(sentence):
        each = " ".join(options.extra) or f"--cpus-per-task={spec.ranks_per_node}"
        hint = f"it asks for --nodes={spec.nodes} {each}; sinfo -N -l lists what the nodes have"
        return FieldError("nodes", rule, {"min": spec.min_nodes, "max": spec.nodes}, hint)
    return FieldError("slurm", rule, options.extra)


def slurm_rules(spec: JobSpec) -> Iterator[FieldError]:
    """The rules that do not depend on the cluster."""
    yield from _size_rules(spec)
    if spec.gpu_share < 1:
        yield FieldError("gpu_share", "is not possible on Slurm, which gives GPUs to jobs", spec.gpu_share, "omit it")
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
    for name in _IN_EXTRA:
        value, option = getattr(options, name), _in_extra(options, name)
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


def _in_extra(options: SlurmOptions, name: str) -> str | None:
    """The option among the further ones that says what the field ``name`` does."""
    return next((option for option in options.extra if re.match(_IN_EXTRA[name], option)), None)
