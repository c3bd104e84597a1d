"""What a submission asks Slurm: has it GPUs, and would it take this job?"""

import re
import tempfile
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from rekindle.contract.job import JobSpec, SlurmOptions
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.jobs.submission import FieldError
from rekindle_service.launchers.slurm.batch_job import sbatch_options, stand_in_script
from rekindle_service.launchers.slurm.commands import RefusedError, SlurmCommands, UnreachableError
from rekindle_service.launchers.slurm.queue_listing import job_name

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


@dataclass(slots=True)
class SlurmCluster:
    """Thread-safe."""

    commands: SlurmCommands
    _answers: dict[tuple[str, ...], tuple[float, str | None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def device(self, options: SlurmOptions) -> str:
        """ "cpu" where Slurm does not answer, too."""
        try:
            return "cuda" if self.commands.has_gpus(options.partition) else "cpu"
        except UnreachableError:
            return "cpu"

    def errors(self, spec: JobSpec) -> list[FieldError]:
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
                self.commands.test(key, script)
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


def _options(spec: JobSpec) -> list[str]:
    """As they will be, in a directory that nobody needs yet."""
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
