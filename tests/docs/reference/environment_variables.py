"""The page of environment variables: those of a rank, and those that rekindle reads."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from docs.reference.markdown import GENERATED, code, table
from rekindle.contract import environment
from rekindle.contract.run_dir.paths import RunDir

_CONSTANT = re.compile(r'^[A-Z_0-9]+ = "([A-Z_]+)"  # (.+)$', re.MULTILINE)

_TORCHRUN = {
    "RANK, LOCAL_RANK, GROUP_RANK": "number of the rank among all, on its machine, and number of the machine",
    "WORLD_SIZE, LOCAL_WORLD_SIZE": "number of ranks, and of those on the machine",
    "MASTER_ADDR, MASTER_PORT": "where `torch.distributed` meets; another port in every attempt",
    "OMP_NUM_THREADS": "1 in a job of more than one rank, unless the job sets it",
    "CUDA_VISIBLE_DEVICES": "the GPUs of the job's slots and no other; empty without GPUs",
    "GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, TP_SOCKET_IFNAME": "`lo`, on several machines the interface between them, "
    "unless the job sets them",
    "PYTHONPATH": "begins with the directory from which `import rekindle` is found",
    "TMPDIR": "a directory of the job that is removed at its end, unless the setting `private_tmp` is false",
}
_ON_CLUSTER = (environment.NODE, environment.NODE_PEERS, environment.HOST)
_OTHERS = {
    environment.ARRAY_INDEX: "index of the job in an array (`rekindle submit --array`)",
    environment.GPU_SHARE: None,
    environment.WANDB_RUN_ID: None,
    environment.WANDB_RESUME: None,
}

_READ = {
    "REKINDLE_*": "every [setting](settings.md), by its name in capitals",
    "REKINDLE_HOME": "directory of the database, the token and all runs, of the server and of every command",
    "REKINDLE_URL, REKINDLE_TOKEN, REKINDLE_TOKEN_FILE": "the server that commands and the Python client talk to, and "
    "the token, or the file that has it; without them the server of this machine",
    "VIRTUAL_ENV, CONDA_PREFIX": "the environment of the shell, whose interpreter `rekindle submit` asks for first",
    "NO_COLOR, TERM, COLUMNS": "colours and width of the output of commands, as in other programs",
    "CUDA_VISIBLE_DEVICES": "of the server: the GPUs that jobs can get",
}
_HOOK = {
    environment.EVENT: "type of the event",
    environment.EVENT_ID: "id of the event: the same in a repeated delivery",
    environment.EVENT_JSON: "the body that a webhook would get",
}

_INTRODUCTION = """\
A script reads the variables of the first two tables. `--env NAME=VALUE` of `rekindle submit` adds variables to a job,
`--env NAME` copies one from the shell."""

_REMOVED = """\
A job gets the variables of the server, not those of the shell that submits it. Removed from them are those of another
torchrun, of another job and of the server itself: names that begin with {prefixes}, and {names}."""


def lines() -> Iterator[str]:
    """The whole page."""
    yield from ("# Environment variables", "", GENERATED, "", *_INTRODUCTION.splitlines(), "")
    yield from ("## Of every rank", "")
    yield from _table({**dict.fromkeys(_of_attempt()), **_TORCHRUN, **_OTHERS})
    yield from ("## Of a rank on a cluster", "")
    yield from _table(dict.fromkeys(_ON_CLUSTER))
    prefixes, names = (
        ", ".join(map(code, sorted(each))) for each in (environment.CLEANED_PREFIXES, environment.CLEANED)
    )
    yield from ("## Removed", "", *_REMOVED.format(prefixes=prefixes, names=names).splitlines(), "")
    yield from ("## Read by rekindle", "")
    yield from _table(_READ)
    yield from ("## Of a command that receives notifications", "")
    yield from _table(_HOOK)


def known() -> set[str]:
    """All names that the page has, and those of internal use."""
    names = {*_TORCHRUN, *_OTHERS, *_READ, *_HOOK}
    return {one for name in names for one in name.split(", ")} | _constants().keys()


def _table(found: dict[str, str | None]) -> Iterator[str]:
    meanings = _constants()
    rows = ((", ".join(map(code, name.split(", "))), text or meanings[name]) for name, text in found.items())
    yield from table(("variable", "value"), rows)


def _of_attempt() -> Iterator[str]:
    run_dir = RunDir(Path("/home/runs/k3v9x2m1qa"))
    yield from environment.attempt_environment(run_dir=run_dir, attempt=1, generation="", snapshot_policy="")


def _constants() -> dict[str, str]:
    """The variables of ``contract.environment`` with the comments of their lines."""
    return dict(_CONSTANT.findall(inspect.getsource(environment)))
