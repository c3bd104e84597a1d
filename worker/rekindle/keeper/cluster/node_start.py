"""``python -P -m rekindle.keeper.cluster.node_start RUN_DIR LAUNCH HOST [ADDRESS]``: become the keeper of one node.

In two steps, since libraries that torch loads, such as OpenMP, read their variables when they are loaded: first the
environment of the launch, then, by exec, an interpreter that has it from its start. Between them, in bash, the prologue
of the job.
"""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rekindle.contract.environment import HOST, RUN_DIR
from rekindle.contract.job import JobSpec
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir

PROLOGUE_FAILED = "the prologue failed"
"""Begins what the start of a keeper prints last where the job's own prologue is to blame."""
_MODULE = "rekindle.keeper.cluster.node_start"
_KEEPER = "rekindle.keeper.cluster.node"
_CHECKED = """
fail() { echo "$1" >&2; exit 78; }
[ -f "$1/spec.json" ] || fail "it does not see $1"
[ -d "$2/rekindle" ] || fail "it does not see $2"
[ -x "$3" ] || fail "there is no Python at $3"
shift 3
exec "$@"
"""
"""What a node must have, in words; else the end of its output would be an error of the interpreter or of env."""
_LINE = """\
rekindle_line={line}
eval "$rekindle_line" >{output} 2>&1 || exit
rekindle_show >&2
"""
_PROLOGUE = """\
rekindle_show() {{
  rekindle_last=
  while IFS= read -r rekindle_text || [ -n "$rekindle_text" ]; do
    printf '%s\\n' "$rekindle_text"
    case $rekindle_text in *[![:space:]]*) rekindle_last=": $rekindle_text" ;; esac
  done <{output}
}}
rekindle_end() {{
  rekindle_code=$?
  rekindle_show >&{stderr}
  rekindle_how="ended with exit code $rekindle_code$rekindle_last"
  printf '{failed} on %s: "%s" %s\\n' {host} "$rekindle_line" "$rekindle_how" >&{stderr}
}}
trap rekindle_end EXIT
{lines}trap - EXIT
exec /usr/bin/env {variables} PYTHONPATH={path}"${{PYTHONPATH:+:$PYTHONPATH}}" {command} {output_fd}>&- {stderr}>&-
"""
"""Each line runs in this shell, so that what it sets stays; its output is kept apart, for the reason where it fails."""


def node_command(run_dir: RunDir, launch: int, host: str, *more: str) -> Sequence[str]:
    """The command for the keeper of ``host``: with the interpreter and path of this process, and no other variable."""
    path = os.environ.get("PYTHONPATH", "")
    python = [sys.executable, "-P", "-m", _MODULE, str(run_dir.root), str(launch), host, *more]
    found_by = [f"{RUN_DIR}={run_dir.root}", f"{HOST}={host}"]  # what the keeper leaves, by the next one
    needed = [str(run_dir.root), path.partition(os.pathsep)[0], sys.executable]
    return ["/bin/sh", "-c", _CHECKED, "sh", *needed, "/usr/bin/env", f"PYTHONPATH={path}", *found_by, *python]


def main(root: str, launch: str, host: str, *more: str) -> int:
    """Does not return, unless this node cannot run the keeper."""
    run_dir = RunDir(Path(root))
    command = [sys.executable, "-P", "-m", _KEEPER, root, launch, host, *more]
    try:
        _take_environment(run_dir.launch(int(launch)).environment)
        os.environ |= {RUN_DIR: root, HOST: host}
        spec = read_record(run_dir.spec, JobSpec)
        if spec is not None and spec.slurm is not None and spec.slurm.prologue:
            command = ["/bin/bash", "-c", with_prologue(spec.slurm.prologue, command, host)]
        os.execv(command[0], command)  # noqa: S606
    except (OSError, ValueError) as error:
        print(f"the keeper on {host} cannot continue: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return 1


def _take_environment(path: Path) -> None:
    """Replace this process's environment by the launch's, which the server has written, plus what Slurm has set.

    Raises OSError, ValueError.
    """
    wanted = json.loads(path.read_bytes())
    if not isinstance(wanted, dict):
        raise ValueError(f"{path} is no JSON object")  # noqa: TRY004  # a value, not a call
    kept = ("CUDA_VISIBLE_DEVICES", "TMPDIR")
    own = {name: text for name, text in os.environ.items() if name.startswith("SLURM") or name in kept}
    os.environ.clear()
    os.environ.update({str(name): str(text) for name, text in wanted.items()} | own)


def with_prologue(lines: Sequence[str], command: Sequence[str], host: str) -> str:
    """A script that runs ``lines``, then ``command`` in its place. What rekindle has set stays as it is."""
    output, stderr = os.memfd_create("prologue", 0), os.dup(2)
    os.set_inheritable(stderr, True)
    file = f"/proc/self/fd/{output}"
    kept = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("REKINDLE_")]
    return _PROLOGUE.format(
        lines="".join(_LINE.format(line=shlex.quote(line), output=file) for line in lines),
        failed=PROLOGUE_FAILED,
        output=file,
        output_fd=output,
        stderr=stderr,
        host=shlex.quote(host),
        variables=shlex.join(kept),
        path=shlex.quote(os.environ.get("PYTHONPATH", "")),
        command=shlex.join(command),
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
