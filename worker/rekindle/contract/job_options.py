"""Every option of a job, each defined once: what reads, checks, asks for, shows and documents options follows from it.

``JobSpec``, the request of the API, the options of `rekindle submit`, the form, the commands that the page shows, the
fields that an experiment varies, and the reference come from the fields of the classes below. So a new option is a
field with ``option`` and a text here, its use, and its prose in docs/. Standard library only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from enum import StrEnum
from functools import cache, partial
from typing import Any, ClassVar, cast, get_args, get_origin, get_type_hints

from rekindle.contract.field_texts import field_texts
from rekindle.contract.run_dir.json_records import JsonRecord

MAX_RANKS = 4096  # of a job
MAX_PRIORITY = 1000


class OptionGroup(StrEnum):
    """Headings under which options are shown."""

    CODE = "Code and environment"
    QUEUE = "Queue"
    RANKS = "Ranks and devices"
    FAILURES = "Failures"
    SNAPSHOTS = "Snapshots (checkpoints)"
    SLURM = "Slurm"


class Widget(StrEnum):
    """How a form shows a value, and how it and a command line write it."""

    TEXT = "text"
    NUMBER = "number"
    TICK = "tick"  # a flag
    CHOICE = "choice"
    RANGE = "range"  # 2, or 1:4 for a minimum and a maximum
    LINES = "lines"  # one item a line; on a command line the option is repeated
    JOBS = "jobs"  # references to jobs, with spaces between them
    WORDS = "words"  # a command line, quoted as for a shell
    VARIABLES = "variables"  # NAME=VALUE, one a line


@dataclass(frozen=True, slots=True)
class JobOption:
    """What is known of an option, for everything that shows or reads it. Sentences may have `code`."""

    unset: str  # what happens without it, where its default does not say that
    group: OptionGroup
    label: str = ""  # heading of its value; by default the name in words
    widget: Widget = Widget.TEXT  # by default as the type of the field requires
    flag: str = ""  # by default the parameter with dashes; ``--yes/--no`` of a tick
    parameter: str = ""  # of `rekindle submit` and the form; by default the name
    in_shell: str = ""  # a further sentence for the command line
    metavar: str | None = None
    examples: Sequence[Any] = ()
    limits: Mapping[str, float] = field(default_factory=dict)  # in pydantic's words, of the value or the list
    requested: Any = None  # default of a request, where that of the record is another one
    is_argument: bool = False  # words after the options of `rekindle submit`
    only_ours: bool = False  # scripts hardly ever have an option of this name: after the script it is a mistake
    varies: bool = False  # an experiment may give it several values
    needs_code: bool = False  # no recipe has it
    common: bool = False  # people set it often: a form and a help show it before all others
    help: str = ""  # what it sets: the text below the field
    name: str = ""  # of the field in a request
    section: str = ""  # field of the request that contains it
    default: Any = None  # of a request
    kind: Any = None  # type of the value, or of an item of the list

    @property
    def path(self) -> str:
        """``snapshot.keep``."""
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def choices(self) -> list[str]:
        """The values that it may have; empty where there is no list of them."""
        return [each.value for each in self.kind] if self.widget is Widget.CHOICE else []

    @property
    def without(self) -> str:
        """What happens where it is not given, for people; "" where the sentence says it all."""
        if self.unset or self.default in (None, [], {}) or self.widget is Widget.TICK:
            return self.unset
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


def option(default: Any, unset: str = "", **known: Any) -> Any:
    """A field of a record that is an option of a job; ``known``: further fields of ``JobOption``."""
    metadata = {"option": JobOption(unset, **known)}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def options_of(record: type[JsonRecord], section: str = "") -> tuple[JobOption, ...]:
    """The options of a class in the order of its fields; ``section``: the field of a request that has them."""
    hints = get_type_hints(record)
    found = [each for each in fields(cast("Any", record)) if each.metadata]
    return tuple(_named(each, record, section, hints[each.name]) for each in found)


def _named(found: "Field[Any]", record: type[JsonRecord], section: str, hint: Any) -> JobOption:
    known: JobOption = found.metadata["option"]
    name = record.keys.get(found.name, found.name)
    default = found.default if found.default is not MISSING else cast("Any", found).default_factory()
    kind = next((each for each in get_args(hint) if each is not type(None)), hint)
    parameter = known.parameter or name
    return replace(
        known,
        help=" ".join(field_texts(record)[found.name].split()),
        label=known.label or name.replace("_", " ").capitalize(),
        widget=_widget(hint, kind) if known.widget is Widget.TEXT else known.widget,
        flag=known.flag or f"--{parameter.replace('_', '-')}",
        parameter=parameter,
        name=name,
        section=section,
        default=default if known.requested is None else known.requested,
        kind=kind,
    )


def _widget(hint: Any, kind: type) -> Widget:
    if get_origin(hint) in (list, dict):
        return Widget.LINES if get_origin(hint) is list else Widget.VARIABLES
    if kind is bool or kind is str:
        return Widget.TICK if kind is bool else Widget.TEXT
    return Widget.CHOICE if issubclass(kind, StrEnum) else Widget.NUMBER


_in_code = partial(option, group=OptionGroup.CODE)
_in_queue = partial(option, group=OptionGroup.QUEUE)
_in_ranks = partial(option, group=OptionGroup.RANKS)
_in_failures = partial(option, group=OptionGroup.FAILURES)
_in_snapshots = partial(option, group=OptionGroup.SNAPSHOTS)
_in_slurm = partial(option, group=OptionGroup.SLURM)

SECONDS = {"gt": 0, "le": 10 * 365 * 24 * 3600}
COUNT = {"ge": 1, "le": 1 << 53}  # as far as JavaScript counts


class TargetKind(StrEnum):
    """What the ranks run."""

    SCRIPT = "script"  # a file, relative to the code directory
    MODULE = "module"  # a module, as for `python -m`
    RECIPE = "recipe"  # one of rekindle.recipes


class LaunchMode(StrEnum):
    """How the processes of an attempt are started."""

    AUTO = "auto"  # never once the job is accepted
    TORCHRUN = "torchrun"  # one process per rank
    PROCESS = "process"  # one process, which is rank 0 and holds all devices, as with plain `python train.py`


class LinkRule(StrEnum):
    """What the links between the GPUs of a job must be; "linked" means joined by NVLink."""

    PREFERRED = "preferred"  # the free GPUs that reach each other best
    REQUIRED = "required"  # each pair is linked
    AVOIDED = "avoided"  # no pair is linked


@dataclass(frozen=True, slots=True)
class SnapshotPolicy(JsonRecord):
    """When to take a snapshot, whichever is due first, and which to keep. Without any rule for when: ``auto``.

    ``auto``: the interval that costs least, from the cost of a snapshot and the rate of failures; also at the end of
    an epoch. ``monitor`` is a logged metric, ``accuracy`` or, where less is better, ``-loss``: the best snapshot is
    kept in addition to the latest ``keep_last``.
    """

    keys: ClassVar = {"keep_last": "keep"}
    every_steps: int | None = _in_snapshots(None, "no such rule", label="Every … steps", limits=COUNT)
    """Optimizer steps between two snapshots."""
    every_seconds: float | None = _in_snapshots(
        None, "no such rule", label="Every … seconds", metavar="SECONDS", limits=SECONDS
    )
    """Seconds between two snapshots."""
    every_epochs: int | None = _in_snapshots(None, "no such rule", label="Every … epochs", limits=COUNT)
    """Epochs between two snapshots."""
    keep_last: int = _in_snapshots(3, limits={"ge": 1, "le": 1000})
    """Number of latest snapshots to keep. The best one and pinned ones are kept in addition."""
    auto: bool = _in_snapshots(False, label="Automatic interval", flag="--every-auto")
    """Use the interval with the lowest expected cost, computed from the time a snapshot takes and the failure rate,
    even if the script sets another one."""
    monitor: str | None = _in_snapshots(
        None, "none", label="Also keep the best by", metavar="METRIC|-METRIC", examples=["accuracy", "-loss"]
    )
    """Metric by which the best snapshot is chosen and kept; a leading `-` means that lower is better."""


@dataclass(frozen=True, slots=True)
class SlurmOptions(JsonRecord):
    """What ``sbatch`` is asked for, apart from the nodes; None leaves it to Slurm. Values are as sbatch takes them.

    ``extra`` are further options of ``sbatch``, each one argument (``--cpus-per-task=8``). ``prologue`` are lines for
    bash, which each node runs before its keeper: variables that they set reach the ranks.
    """

    partition: str | None = _in_slurm(None, "that of the cluster")
    """Partition, as for `sbatch --partition`."""
    account: str | None = _in_slurm(None, "that of the user")
    """Account that is charged, as for `sbatch --account`."""
    qos: str | None = _in_slurm(None, "that of the account", label="Quality of service")
    """Quality of service, as for `sbatch --qos`."""
    time: str | None = _in_slurm(
        None,
        "the limit of the partition",
        label="Time of an allocation",
        parameter="slurm_time",
        metavar="TIME",
        examples=["4:00:00"],
    )
    """Time limit of one allocation, as for `sbatch --time`. At its end the job is drained and continues in the next
    allocation."""
    constraint: str | None = _in_slurm(None, "any node", metavar="FEATURES")
    """Features that nodes must have, as for `sbatch --constraint`."""
    mem: str | None = _in_slurm(
        None,
        "computed from what the latest job of this name that succeeded used, else that of Slurm",
        label="Memory",
        parameter="slurm_mem",
        metavar="SIZE",
        examples=["32G"],
    )
    """Memory of each node, as for `sbatch --mem`."""
    gres: str | None = _in_slurm(
        None,
        "the GPUs that its ranks need",
        label="Generic resources",
        metavar="NAME[:TYPE]:N",
        examples=["gpu:a100:4"],
    )
    """Generic resources of each node, as for `sbatch --gres`."""
    gpus_per_node: str | None = _in_slurm(
        None, "as many as its ranks need", label="GPUs per node", metavar="[TYPE:]N", examples=["4", "a100:4"]
    )
    """GPUs of each node, as for `sbatch --gpus-per-node`."""
    prologue: list[str] = _in_slurm(
        [], parameter="slurm_prologue", metavar="LINE", examples=[["module load cuda"]], limits={"max_length": 50}
    )
    """Lines that bash runs on each node before the ranks start. Variables that they set reach the ranks."""
    extra: list[str] = _in_slurm(
        [],
        label="Other options",
        parameter="slurm_extra",
        metavar="OPTION",
        examples=[["--cpus-per-task=8"]],
        limits={"max_length": 50},
    )
    """Further options of `sbatch`, each as one text. Options that rekindle sets itself are rejected."""


@dataclass(frozen=True, slots=True)
class Replay(JsonRecord):
    """What makes a job a replay: the job that it repeats, and what it does in its first step besides computing it."""

    job: str  # id of the original
    step: int  # the first to compute again
    hook: bool = False  # call the functions of ``RunDir.replay_hook``
    pdb: bool = False  # open a debugger before the step
    rank: int | None = None  # that does so; None: every rank


@dataclass(frozen=True, slots=True)
class RequestOptions(JsonRecord):
    """Options that a request has, and that the server turns into other fields of ``JobSpec``."""

    name: str | None = _in_queue(None, "the name of the script, module or recipe", label="Job name", common=True)
    """Name of the job, at most 200 characters."""
    hold: bool = _in_queue(False, label="On hold", only_ours=True)
    """Hold the job in the queue until it is resumed."""
    python: str | None = _in_code(
        None,
        "the setting `python` of the server, else the one that runs the server",
        in_shell="`active` is the one of this shell, which is also tried first where none is named.",
        metavar="PATH|active",
        varies=True,
    )
    """Absolute path of the Python interpreter of the ranks."""
    ranks: int = _in_ranks(
        1,
        widget=Widget.RANGE,
        metavar="N|MIN:MAX",
        examples=[2, {"min": 1, "max": 4}],
        only_ours=True,
        varies=True,
        common=True,
    )
    """Number of ranks (processes), or a minimum and a maximum, which make the job elastic."""
    slurm: bool = _in_slurm(False)
    """Run the job on Slurm, on one node too; its other options imply it."""
    nodes: int = _in_slurm(1, widget=Widget.RANGE, metavar="N|MIN:MAX")
    """Number of machines of a job on Slurm, or a minimum and a maximum. More than 1 requires Slurm."""


@dataclass(frozen=True, slots=True)
class JobOptions(JsonRecord):
    """What a job runs, and its options, as ``spec.json`` has them."""

    name: str
    kind: TargetKind
    target: str
    python: str  # absolute path of an interpreter
    args: list[str] = _in_code(
        [],
        label="Arguments",
        widget=Widget.WORDS,
        examples=[["--epochs", "10"]],
        limits={"max_length": 10000},
        is_argument=True,
    )
    """Arguments of the script. Placeholders such as `{attempt}` and `{latest:GLOB}` are replaced in each attempt."""
    code: dict[str, str] = field(default_factory=dict)  # its source: path, bundle, or git with ref and commit
    env: dict[str, str] = _in_code(
        {},
        label="Environment",
        in_shell="K alone copies its value from this shell.",
        metavar="K[=V]",
        limits={"max_length": 1000},
    )  # stored with ``HIDDEN`` for each value
    """Environment variables of the ranks: a text, or where to read the value when the job starts."""
    env_from: dict[str, dict[str, str]] = field(default_factory=dict)  # by variable: {"file": path} or {"from": name}
    min_ranks: int = 1
    max_ranks: int = 1
    nodes: int = 1  # of a Slurm allocation, at most; each runs ``ranks_per_node``
    min_nodes: int = 1
    slurm: SlurmOptions | None = None  # runs on Slurm, where it is given
    device: str = _in_ranks(
        "auto", metavar="auto|cpu|cuda|SLOTS", examples=["auto", "cuda", "cuda:5,cuda:6"], varies=True, common=True
    )  # once accepted, not "auto"
    """`auto` (GPUs where the machine has any, else CPU slots), `cpu`, `cuda`, or the slots to choose from."""
    devices_per_rank: int = _in_ranks(1, limits={"ge": 1, "le": MAX_RANKS}, only_ours=True, varies=True)
    """Number of devices of each rank."""
    launch: LaunchMode = _in_ranks(LaunchMode.TORCHRUN, requested=LaunchMode.AUTO, varies=True)
    """`torchrun` starts one process per rank; `process` starts a single process that holds all devices, as `python
    train.py` does; `auto` chooses by reading the script."""
    links: LinkRule = _in_ranks(LinkRule.PREFERRED, label="NVLink between GPUs", varies=True)
    """NVLink between the GPUs of the job: `preferred` takes the free GPUs with the fastest links, `required` only
    linked ones, `avoided` none that are linked."""
    priority: int = _in_queue(0, limits={"ge": -MAX_PRIORITY, "le": MAX_PRIORITY})
    """Priority in the queue; higher starts first and may preempt running jobs of lower priority, which resume
    later: by default only those of its owner (setting `preemption`). `max_priority` limits it."""
    after: list[str] = _in_queue([], widget=Widget.JOBS, metavar="JOB", limits={"max_length": 100}, only_ours=True)
    """Jobs that must have succeeded before this one starts."""
    after_any: list[str] = _in_queue(
        [], label="After the end of", widget=Widget.JOBS, metavar="JOB", limits={"max_length": 100}, only_ours=True
    )
    """Jobs that must have ended before this one starts, whatever their outcome."""
    resizable: bool = _in_ranks(True, flag="--resize/--no-resize")
    """Whether an elastic job may be given more or fewer ranks while it runs."""
    gpu_share: float = _in_ranks(
        1.0, label="Share of each GPU", metavar="0-1", limits={"gt": 0, "le": 1}, only_ours=True
    )
    """Fraction of each GPU that the job takes, above 0 to 1. Below 1, other such jobs share the GPU."""
    max_failures: int = _in_failures(3, label="Maximum failures", limits={"ge": 1, "le": 1000}, only_ours=True)
    """Number of failures in a row without progress after which the job fails: the limit of retries."""
    hang_timeout: float | None = _in_failures(
        None,
        "learned from the time of its steps; 300 for a script that reports no steps",
        metavar="SECONDS",
        limits=SECONDS,
        only_ours=True,
    )
    """Seconds without progress before the ranks count as hung."""
    time_limit: float | None = _in_failures(None, "no limit", metavar="SECONDS", limits=SECONDS)
    """Seconds after the start of its first attempt, retries and back-off included, at which the job is stopped and
    cancelled. A resume starts the count again."""
    last_step: int | None = _in_failures(None, "the end of the training", metavar="STEP", limits=COUNT)
    """Step after which the training of a script that uses `rekindle.Run` ends, as if it were complete."""
    check_device: bool = _in_failures(False, label="Replay suspicious steps")
    """When the job has ended, replay the latest step with a loss that is not finite, a spike of the loss or a silent
    divergence on the same device and another one, and disable the device if only it computes other bits."""
    snapshot: SnapshotPolicy = field(default_factory=SnapshotPolicy)
    warm: bool = _in_ranks(True, label="Warm start", flag="--warm/--cold", varies=True)
    """Keep a process with torch imported, so that the next attempt starts sooner."""
    standby: bool = _in_ranks(False, label="Standby ranks")
    """Start the ranks of the next attempt while this one runs, and hold them at their first effect: a failure no longer
    costs the start of the script, whose memory is used twice."""
    digest: int | None = _in_snapshots(
        None,
        "that of the script, by default 100",
        label="Steps between digests",
        metavar="STEPS",
        limits={"ge": 0, "le": 1 << 53},
    )
    """Steps between two records of what the training is, bit by bit, for `rekindle diff` and `rekindle replay`; 0 for
    none."""
    record_step: int | None = _in_snapshots(
        None, "none", label="Record the layers of step", metavar="STEP", limits=COUNT
    )
    """Step in which the batch and what each layer computes are recorded, of a script that uses `rekindle.Run`."""
    watch: list[str] = _in_snapshots([], label="Watched paths", metavar="PATH", limits={"max_length": 100})
    """Paths in which every file counts as a checkpoint that the script writes itself."""
    mirror: str | None = _in_snapshots(
        None,
        "the setting `mirror` of the server",
        label="Off-box copies",
        metavar="URL",
        examples=["s3://bucket/runs"],
    )
    """Copy the latest, the best and pinned snapshots, the code, logs and journal to this S3, Google Storage or SFTP URL
    or path, from which `rekindle import` continues the job on another machine."""
    mirror_limit: float | None = _in_snapshots(
        None, "no limit", label="Bandwidth in MB/s", metavar="MB/S", limits={"gt": 0, "le": 1e6}
    )
    """Megabytes per second that copying may use on average."""
    mirror_keep: int = _in_snapshots(3, label="Kept at the URL", limits={"ge": 1, "le": 1000})
    """Number of latest snapshots to keep at the URL."""
    mirror_files: list[str] = _in_snapshots(
        [], "none", label="Also copied", metavar="PATTERN", examples=[["out/*.pt"]], limits={"max_length": 100}
    )
    """Files that the script writes into its working directory, by patterns, to copy to the URL, too."""
    require_mirror: bool = _in_snapshots(False, label="Required for success")
    """Let the job succeed only once its last snapshot is safe at the URL."""
    printed_metrics: bool = _in_code(
        True, label="Metrics from the output", flag="--printed-metrics/--no-printed-metrics", only_ours=True
    )
    """Read metrics from what the script prints. Metrics that it reports itself take precedence."""
    step_times: bool = _in_code(True, label="Times within a step", flag="--step-times/--no-step-times", only_ours=True)
    """Measure what the time of sampled steps is spent on, from the data loader to the optimizer."""
    on_restart: list[str] = _in_code(
        [],
        label="Append on restart",
        widget=Widget.WORDS,
        in_shell="In quotes.",
        metavar="ARGS",
        examples=[["--resume", "{exists:last.pt}"]],
        limits={"max_length": 10000},
        only_ours=True,
    )
    """Arguments appended to those of the script from the second attempt on. An argument with `{exists:GLOB}` is
    passed only if a file matches."""
    continue_from: str | None = _in_queue(
        None, label="Continue job", flag="--continue", metavar="JOB", limits={"max_length": 100}
    )
    """A job that has stopped: this job begins with a copy of the files of its script and of its snapshots."""
    continue_step: int | None = _in_queue(
        None, "the latest", label="Continue from step", metavar="STEP", limits={"ge": 0, "lt": 1 << 53}
    )
    """Step of the snapshot to continue from, of the job that this one continues."""
    exclude: list[str] = _in_code(
        [],
        in_shell="The file .rekindleignore has such lines, too.",
        metavar="PATTERN",
        limits={"max_length": 1000},
        needs_code=True,
    )
    """Patterns, as in a `.gitignore`, of files that are not copied with the code."""
    gitignore: bool = _in_code(False, label="Exclude what .gitignore files name", needs_code=True)
    """Do not copy files that the `.gitignore` files of the code name."""
    keep_links: bool = _in_code(False, needs_code=True)
    """Keep symbolic links that lead out of the code, such as those to data; by default such a link is rejected."""
    replay: Replay | None = None  # of a replay only


@cache
def job_options() -> tuple[JobOption, ...]:
    """Every option of a request, by group."""
    found = [
        *options_of(RequestOptions),
        *options_of(JobOptions),
        *options_of(SnapshotPolicy, "snapshot"),
        *options_of(SlurmOptions, "slurm"),
    ]
    order = list(OptionGroup)
    return tuple(sorted(found, key=lambda each: order.index(each.group)))
