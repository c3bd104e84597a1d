"""Commands of other launchers in the words of `rekindle submit`: torchrun, python, and what shell scripts contain."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from rekindle_service.cli.job_request import split_misplaced

_PYTHON = re.compile(r"python(\d(\.\d+)?)?")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "source", "."})
_SHELL_SUFFIXES = frozenset({".sh", ".bash", ".zsh", ".slurm", ".sbatch"})
_OTHER_PROGRAMS = frozenset(
    {"accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "sbatch", "horovodrun"}
    | {"uv", "poetry", "conda", "pipenv", "nohup", "time", "env", "exec", "sudo", "nice"}
)
_TORCHRUN_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})
_TORCHRUN_FLAGS = frozenset({"standalone", "module", "no-python", "run-path", "virtual-local-rank", "use-env"})
_TORCHRUN_OPTIONS = frozenset(
    {"nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "local-addr", "max-restarts", "role"}
    | {"rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "monitor-interval", "start-method", "event-log-handler"}
    | {"log-dir", "redirects", "tee", "local-ranks-filter", "duplicate-stdout-filters", "duplicate-stderr-filters"}
    | {"logs-specs", "numa-binding", "signals-to-handle", "shutdown-timeout"}
)
_SHORT = {"-m": "module", "-r": "redirects", "-t": "tee"}
_PROCESS_COUNTS = ("--num_processes", "--num-processes", "--num_gpus", "--ntasks", "-np", "-n")


class NotTranslatedError(Exception):
    """The command cannot be carried out; the message says what to write instead."""


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """``python``: an interpreter's path; None where the command names none."""

    target: str
    is_module: bool = False
    args: list[str] = field(default_factory=list)
    ranks: int | None = None
    python: str | None = None
    env: list[str] = field(default_factory=list)  # NAME=VALUE
    dropped: list[str] = field(default_factory=list)  # torchrun's options that rekindle sets itself

    def __str__(self) -> str:
        """The command of rekindle."""
        options: list[str] = [] if self.ranks is None else ["--ranks", str(self.ranks)]
        options += [] if self.python is None else ["--python", self.python]
        options += [word for each in self.env for word in ("--env", each)]
        if not self.is_module:
            guard = ["--"] if "--" in self.args or split_misplaced(self.args)[0] else []
            return shlex.join(["rekindle", "submit", *options, self.target, *guard, *self.args])
        guard = ["--"] if any(each.startswith("-") for each in self.args) else []
        return shlex.join(["rekindle", "submit", *options, "--module", self.target, *guard, *self.args])


def translate(words: Sequence[str], cwd: Path) -> LaunchCommand | None:
    """The same as a job; None where ``words`` begin with a script of Python, which needs no translation.

    Raises NotTranslatedError for what rekindle does not carry out.
    """
    env, rest = _split_assignments(words)
    if not rest:
        return None
    program, arguments = PurePath(rest[0]).name, rest[1:]
    if (program in _SHELLS and not rest[0].endswith(".py")) or PurePath(program).suffix in _SHELL_SUFFIXES:
        raise _shell_script(rest, cwd)
    if program in _OTHER_PROGRAMS and not (cwd / rest[0]).is_file():
        raise _other_program(rest, cwd)
    command = _of_program(rest[0], program, arguments)
    if command is None and env:
        command = LaunchCommand(rest[0], args=arguments)
    return None if command is None else replace(command, env=[*env, *command.env])


def _split_assignments(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """``A=1 B=2 torchrun …``: the variables, and the rest."""
    count = next((at for at, word in enumerate(words) if not _ASSIGNMENT.fullmatch(word)), len(words))
    return list(words[:count]), list(words[count:])


def _of_program(word: str, program: str, arguments: list[str]) -> LaunchCommand | None:
    by_path = "/" in word
    if program == "torchrun":  # runs under the interpreter of its own environment
        return _of_torchrun(arguments, str(PurePath(word).with_name("python")) if by_path else None)
    if _PYTHON.fullmatch(program):
        return _of_python(arguments, word if by_path else None)
    return None


def _of_python(words: list[str], python: str | None) -> LaunchCommand:
    for at, word in enumerate(words):
        if word == "-m" and len(words) > at + 1:
            module, args = words[at + 1], words[at + 2 :]
            if module in _TORCHRUN_MODULES:
                return _of_torchrun(args, python)
            return LaunchCommand(module, is_module=True, args=args, python=python)
        if not word.startswith("-"):
            return LaunchCommand(word, args=words[at + 1 :], python=python)
        if word not in ("-u", "-B"):  # output is never held back, and compiled files are no part of the code
            raise NotTranslatedError(
                f"python's option {word} cannot be passed on: put the script's name after `rekindle submit`, and what "
                "the option sets into a variable (--env PYTHON…)"
            )
    raise NotTranslatedError("python without a script: write `rekindle submit train.py`")


def _of_torchrun(words: list[str], python: str | None) -> LaunchCommand:
    given: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = _torchrun_option(words[at])
        if name not in _TORCHRUN_FLAGS and not equals:
            at += 1
            value = words[at] if at < len(words) else ""
        given[name] = value
        at += 1
    if at >= len(words):
        raise NotTranslatedError("torchrun without a script: write `rekindle submit --ranks N train.py`")
    command = LaunchCommand(words[at], is_module="module" in given, args=words[at + 1 :], python=python)
    _check_torchrun(given, command)
    count = given.get("nproc-per-node")
    dropped = [f"--{name}" for name in given if name not in ("nproc-per-node", "module")]
    return replace(command, ranks=None if count is None else int(count), dropped=dropped)


def _torchrun_option(word: str) -> tuple[str, bool, str]:
    """Name with dashes, whether its value is in the same word, and that value; argparse accepts beginnings of names."""
    text, equals, value = word.partition("=")
    name = _SHORT.get(text, text.lstrip("-").replace("_", "-"))
    known = _TORCHRUN_FLAGS | _TORCHRUN_OPTIONS
    names = [name] if name in known else [each for each in known if each.startswith(name)]
    if len(names) != 1:
        raise NotTranslatedError(f"{word} is no option of torchrun: write `rekindle submit --ranks N train.py`")
    return names[0], bool(equals), value


def _check_torchrun(given: dict[str, str], command: LaunchCommand) -> None:
    count = given.get("nproc-per-node", "1")
    if not count.isdecimal():
        right = str(replace(command, python=None)).replace("rekindle submit", "rekindle submit --ranks N", 1)
        raise NotTranslatedError(f"--nproc_per_node {count}: rekindle needs the number of ranks: {right}")
    if given.get("nnodes", "1") not in ("1", "1:1"):
        least, _, most = given["nnodes"].partition(":")
        total = int(count) * int(most or least) if (most or least).isdecimal() else int(count)
        right = str(replace(command, python=None, ranks=total))
        right = right.replace("rekindle submit", f"rekindle submit --nodes {given['nnodes']}", 1)
        raise NotTranslatedError(
            f"--nnodes {given['nnodes']}: Slurm starts a job on several machines, and --ranks is the number on all of "
            f"them: {right}"
        )
    if forbidden := given.keys() & {"no-python", "run-path"}:
        raise NotTranslatedError(f"--{min(forbidden)}: rekindle starts scripts and modules of Python: {command}")


def _other_program(words: list[str], cwd: Path) -> NotTranslatedError:
    """Find what it starts, and the number of processes, in a command whose options are not known."""
    rule = f"{words[0]} cannot be submitted, since rekindle starts the ranks of a Python script itself"
    start = next((at for at, word in enumerate(words) if word.endswith(".py") or _is_launcher(word)), None)
    if start is None:
        return NotTranslatedError(f"{rule}: write `rekindle submit --ranks N train.py`")
    try:
        command = translate(words[start:], cwd) or LaunchCommand(words[start], args=words[start + 1 :])
    except NotTranslatedError as error:
        return NotTranslatedError(f"{rule}. {error}")
    counts = [_count(words, at) for at in range(start)]
    ranks = next((count for count in [command.ranks, *counts] if count is not None), None)
    command = replace(command, ranks=ranks, env=[*filter(_ASSIGNMENT.fullmatch, words[:start]), *command.env])
    return NotTranslatedError(f"{rule}: write `{command}`; what {words[0]} would set, pass with --env NAME=VALUE")


def _count(words: list[str], at: int) -> int | None:
    name, equals, value = words[at].partition("=")
    if name not in _PROCESS_COUNTS:
        return None
    text = value if equals else words[at + 1]
    return int(text) if text.isdecimal() else None


def _is_launcher(word: str) -> bool:
    program = PurePath(word).name
    return program == "torchrun" or _PYTHON.fullmatch(program) is not None


def _shell_script(words: list[str], cwd: Path) -> NotTranslatedError:
    script = next((word for word in words if PurePath(word).suffix in _SHELL_SUFFIXES), words[-1])
    rule = f"{script} is a shell script; rekindle starts the ranks of a Python script itself"
    try:
        text = (cwd / script).read_text(errors="replace")
    except OSError:
        return NotTranslatedError(f"{rule}: write `rekindle submit --ranks N train.py`")
    found = commands_in_shell_script(text)
    if len(found) != 1:
        each = "for each of its commands" if found else "for the script that it starts"
        return NotTranslatedError(f"{rule}: {each}, write `rekindle submit --ranks N train.py`")
    try:
        command = translate(found[0], cwd)
    except NotTranslatedError as error:
        return NotTranslatedError(f"{rule}. {error}")
    unset = " (fill in the variables of the shell)" if "$" in str(command) else ""
    return NotTranslatedError(f"{rule}: write `{command}`{unset}")


def commands_in_shell_script(text: str) -> list[list[str]]:
    """The commands that start Python, as words with the variables that the script itself sets before them."""
    variables: dict[str, str] = {}
    exported: dict[str, str] = {}
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        try:
            words = [_substitute(word, variables) for word in shlex.split(line, comments=True)]
        except ValueError:
            continue
        own, rest = _split_assignments(words[1:] if words[:1] == ["export"] else words)
        if not rest:
            pairs = dict(each.split("=", 1) for each in own)
            variables |= pairs
            exported |= pairs if words[:1] == ["export"] else {}
            continue
        start = next((at for at, word in enumerate(rest) if _is_launcher(word)), None)
        if start is not None and (start == 0 or rest[0] in _OTHER_PROGRAMS):
            kept = [word for word in rest[start:] if word not in ("$@", "$*")]
            found.append([*(f"{name}={value}" for name, value in exported.items()), *own, *_before_redirection(kept)])
    return found


def _substitute(word: str, variables: dict[str, str]) -> str:
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda match: variables.get(match[1] or match[2], match[0]), word)


def _before_redirection(words: list[str]) -> list[str]:
    """Drop ``> log.txt``, ``2>&1``, ``| tee`` and ``&``."""
    end = next((at for at, word in enumerate(words) if re.match(r"\d?>|[|&;]", word)), len(words))
    return words[:end]
