"""The Slurm job of one launch: its files on the shared file system, with the script that starts the coordinator.

The keeper's code is in the home, which all nodes see.
"""

import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.environment import RUN_DIR
from rekindle.contract.files import atomic_write, write_json
from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import SlurmOptions
from rekindle.contract.run_dir.paths import LaunchDir, RunDir
from rekindle_service.config.home import Home
from rekindle_service.launch.local.local_launcher import keeper_environment
from rekindle_service.launch.slurm.slurm_commands import job_name
from rekindle_service.store.tables import Job
from rekindle_service.submission import stored_values

COORDINATOR = "rekindle.keeper.cluster"
_OWN = (
    "job-name", "nodes", "ntasks", "ntasks-per-node", "no-kill", "requeue", "no-requeue", "open-mode", "output",
    "error", "input", "signal", "export", "export-file", "get-user-env", "chdir", "array", "wrap", "parsable", "wait",
    "test-only", "help", "usage", "version", "quiet", "verbose", "uid", "gid", "bcast", "clusters", "partition",
    "account", "qos", "time", "constraint", "kill-on-bad-exit", "kill-on-invalid-dep",
)  # fmt: skip
"""What the keepers rely on, and what has an option of its own."""

_FIELDS = ("partition", "account", "qos", "time", "constraint")
_RESOURCES = ("mem", "gres", "gpus_per_node")
"""Fields whose options ``SlurmOptions.extra`` may have, too: one of both."""
_EXTRA = re.compile(r"--([a-z][a-z0-9-]*)(=.*)?", re.DOTALL)
_EXCLUDE = re.compile(r"--exclude?=")
_BY_RESOURCE = (("cpus-per-task",), ("gpus-per-node", "gpus", "gres", "gpus-per-task", "gpus-per-socket"))
"""Options of which the last one given counts: a job may choose these itself."""

_OF_THIS_MACHINE = frozenset({"CUDA_VISIBLE_DEVICES", "TMPDIR", "HOSTNAME", "DISPLAY", "XDG_RUNTIME_DIR"})
_OF_SLURM = ("SLURM_", "SBATCH_", "SRUN_", "SQUEUE_", "SALLOC_")


def extra_error(option: str) -> str | None:
    """The rule that one of ``SlurmOptions.extra`` violates, or None. sbatch takes any clear beginning of a name."""
    match = _EXTRA.fullmatch(option)
    if match is None:
        return "must be written --name or --name=value, as sbatch takes it"
    name = match[1]
    own = next((each for each in _OWN if each.startswith(name) and (len(name) > 3 or each == name)), None)
    if own is None:
        return None
    if own in _FIELDS:
        return f"has a field of its own, {own} (--{'slurm-time' if own == 'time' else own})"
    return f"is set by rekindle (--{own})"


def sbatch_options(
    spec: JobSpec, name: str, run_dir: RunDir, launch: LaunchDir, excluded: Collection[str] = ()
) -> list[str]:
    """Everything but the script. The job's own come last, and only those that the keepers do not rely on.

    ``excluded``: nodes that it must not get, in addition to those that the job excludes; the last such option counts.
    No number of tasks: with ``--ntasks-per-node=1`` Slurm 22.05 gives the fewest nodes of a range, without it the most.
    """
    slurm = spec.slurm or SlurmOptions()
    nodes = f"{spec.min_nodes}-{spec.nodes}" if spec.min_nodes != spec.nodes else str(spec.nodes)
    return [
        f"--job-name={name}",
        f"--nodes={nodes}",
        *_resources(spec, slurm),
        "--no-kill",
        "--requeue",
        "--open-mode=append",
        "--output=" + str(launch.slurm_log).replace("%", "%%"),  # sbatch fills in %j and others
        "--export=NIL",
        f"--chdir={run_dir.code}",
        *(
            f"--{field.replace('_', '-')}={value}"
            for field in (*_FIELDS, *_RESOURCES)
            if (value := getattr(slurm, field)) is not None
        ),
        *slurm.extra,
        *_exclude(slurm.extra, excluded),
    ]


def _exclude(extra: Sequence[str], excluded: Collection[str]) -> Iterator[str]:
    own = [option.partition("=")[2] for option in extra if _EXCLUDE.match(option)]
    if excluded:
        yield f"--exclude={','.join([*own[-1:], *sorted(excluded)])}"


def _resources(spec: JobSpec, slurm: SlurmOptions) -> Iterator[str]:
    """Processors and GPUs of each node, unless the job asks for another number."""
    given = {option[2:].partition("=")[0] for option in slurm.extra}
    if given.isdisjoint(_BY_RESOURCE[0]):
        yield f"--cpus-per-task={spec.ranks_per_node}"
    has_gpus = slurm.gpus_per_node is not None or "gpu" in (slurm.gres or "")
    if spec.device_kind == "cuda" and not has_gpus and given.isdisjoint(_BY_RESOURCE[1]):
        yield f"--gpus-per-node={spec.ranks_per_node * spec.devices_per_rank}"


def batch_script(python: str, worker_path: Path, run_dir: RunDir, launch: int, environment: Mapping[str, str]) -> str:
    """A shell script that explains itself in the job's log where the node lacks something."""
    root, home = shlex.quote(str(run_dir.root)), shlex.quote(str(worker_path))
    interpreter = shlex.quote(python)
    path = environment.get("PATH", "/usr/bin:/bin")
    return f"""#!/bin/sh
# Made by rekindle for {job_name(run_dir.job_id, launch)}.
PATH={shlex.quote(path)}; export PATH
fail() {{ echo "rekindle: node ${{SLURMD_NODENAME:-$(hostname)}}: $1" >&2; exit 78; }}
[ -f {root}/spec.json ] || fail "it does not see "{root}": the home of the server must be on a file system that all \
nodes mount at the same path"
[ -d {home}/rekindle ] || fail "it does not see "{home}", the keeper's code in the home of the server"
[ -x {interpreter} ] || fail "there is no Python at "{interpreter}": install it at this path on every node, or submit \
the job with --python and a path that all nodes have"
exec env PYTHONPATH={home} {interpreter} -P -m {COORDINATOR} {root} {launch}
"""


def stand_in_script() -> str:
    """What ``sbatch --test-only`` gets: Slurm does not look into it."""
    return "#!/bin/sh\nexit 0\n"


@dataclass(frozen=True, slots=True)
class LaunchFiles:
    """``worker_path``: see ``prepare_worker_copy``."""

    home: Home
    worker_path: Path

    def write(self, job: Job, excluded: Collection[str] = ()) -> tuple[list[str], Path]:
        """The options of sbatch and the script for ``job.launch_number``. Raises OSError and MissingVariableError."""
        run_dir = self.home.run_dir(job.id)
        launch = run_dir.launch(job.launch_number)
        launch.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        variables = self.environment(job, os.environ)
        write_json(launch.environment, variables, durable=False)
        script = batch_script(job.spec.python, self.worker_path, run_dir, job.launch_number, os.environ)
        atomic_write(launch.script, script.encode(), durable=False)
        name = job_name(job.id, job.launch_number)
        return sbatch_options(job.spec, name, run_dir, launch, excluded), launch.script

    def environment(self, job: Job, inherited: Mapping[str, str]) -> dict[str, str]:
        """The environment of a keeper here, without what belongs to this machine or to a Slurm job around it."""
        shared = {
            name: value
            for name, value in inherited.items()
            if name not in _OF_THIS_MACHINE and not name.startswith(_OF_SLURM)
        }
        values = stored_values(self.home.run_dir(job.id))
        variables = keeper_environment(job, self.worker_path, (), shared, values)
        del variables["CUDA_VISIBLE_DEVICES"]  # Slurm sets it
        return variables | {RUN_DIR: str(self.home.run_dir(job.id).root)}
