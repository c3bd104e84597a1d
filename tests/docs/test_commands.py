"""Every command that README.md and docs/ show is carried out: on one server, in one order, until it ends or is left."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from cli_process import environment
from doc_pages import ROOT, blocks, commands, pages
from docs.test_readme import parse
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from rekindle_service.client import Client, is_settled
from rekindle_service.config.settings import Settings

pytestmark = pytest.mark.long

_LONG = 240.0  # seconds: several attempts, on a busy machine

NOT_RUN = {
    "pip install .": "installs into the environment of the tests",
    "make test-gpu": "its tests are in the long tier",
    "torchrun --nproc-per-node 2 -m rekindle.recipes.ddp --epochs 20": "shorter, by tests/e2e/test_run_recipe.py",
}
"""Shown and not carried out here, with the reason."""

EXAMPLES = {path.name for path in (ROOT / "docs" / "examples").iterdir()}
"""Scripts that tests/ecosystem runs, where their libraries are installed."""


@dataclass(frozen=True)
class Ends:
    """The command ends by itself, having printed ``shows``."""

    shows: str = ""
    code: int = 0


@dataclass(frozen=True)
class Left:
    """The command stays; it is left by Ctrl-C when it has printed ``sign``."""

    sign: str
    code: int = 130


SERVERS = {
    "rekindle serve": Left("/login and sign in", code=0),
    'REKINDLE_NOTIFY=\'[{"command": ["/usr/local/bin/tell-the-lab"], "events": ["failed"]}]\' rekindle serve': Left(
        "/login and sign in", code=0
    ),
}
"""Each in a home of its own."""

WHILE_TRAINING = {
    "rekindle submit --ranks 2 --name digits train.py --lr 0.1": Ends("digits is job 1"),
    "rekindle ps": Ends("digits"),
    "rekindle ps -o json": Ends('"name": "digits"'),
    "rekindle submit --dry-run -o json --ranks 2 train.py": Ends('"command": ['),
    "rekindle submit -o json --ranks 2 --name cnn train.py --lr 0.1": Ends('"state": "queued"'),
    "rekindle queue -o json": Ends('"waiting_for"'),
    "rekindle top": Ends("digits"),
    "rekindle --install-completion": Ends("completion installed"),
    "rekindle logs -f digits": Left("[rank 1] epoch "),
    "rekindle experiment --list": Ends("shuffle"),
    "rekindle experiment shuffle --follow": Left("Experiment 1 "),
    "rekindle experiment --show shuffle --follow": Left("Experiment 1 "),
    "rekindle experiment --show shuffle -o json": Ends('"name": "shuffle"'),
    "rekindle experiment --cancel shuffle": Ends(),
    "rekindle experiment --resume shuffle": Ends("no job of experiment", code=2),
    "rekindle experiment shuffle --follow -- --epochs 20": Left("Experiment 2 "),
    "rekindle experiment scaling --size full --follow -- --data-dir /data": Left("Experiment 3 "),
    "rekindle experiment --file rates.toml --follow": Left("Experiment 4 "),
    "rekindle sweep --goal loss --follow rates.py --lr 0.1,0.01,0.001 -- --seed 1": Left("Experiment 5 "),
    "rekindle submit --recipe ddp --ranks 2 -- --epochs 20": Ends("ddp"),
    "rekindle --url http://127.0.0.1:8700 submit train.py --lr 0.1": Ends("train"),
    'curl -H "Authorization: Bearer $(rekindle token)" http://127.0.0.1:8700/api/v1/jobs': Ends('"items":'),
    "rekindle chaos --yes digits --fault kill --fault keeper": Ends("kill rank"),
    "rekindle show digits": Ends("attempt 3"),
    "rekindle show digits -o json": Ends('"story": {'),
    "rekindle doctor digits --stacks -o json": Ends('"stacks": {'),
    "rekindle doctor digits": Ends("state"),
    "rekindle doctor digits --stacks": Ends("rank 1\n"),
    "rekindle doctor": Ends("torch"),
    "rekindle submit --name broken broken.py": Ends("broken is job"),
    "rekindle show broken": Ends("queued"),
    "rekindle queue": Ends("OWNER"),
    "rekindle submit --dry-run --ranks 2 --priority 10 train.py": Ends("Nothing was submitted."),
    "rekindle submit --name nightly --priority -5 train.py": Ends("nightly is job"),
    "rekindle submit --name held --hold train.py": Ends("held is job"),
    "rekindle resume held": Ends("Resumed held"),
    "rekindle submit --name evaluate --after digits train.py": Ends("evaluate is job"),
    "rekindle submit --array 0-5%2 --name seeds train.py --seed '{index}'": Ends("6 jobs"),
    "rekindle submit --recipe ddp --name elastic --ranks 1:2 -- --epochs 300": Ends("elastic is job"),
}
"""The slots are taken by the first job: whatever is submitted behind it stays in the queue, and is cancelled."""

TO_HOLD = {"rekindle drain digits": Ends("Draining digits")}

WHILE_HELD = {
    "rekindle submit --ranks 2 --name exact exact.py": Ends("exact is job"),
    "rekindle chaos --yes exact --fault kill": Ends("kill rank"),
    "rekindle drain exact": Ends("Draining exact"),
    "rekindle snapshots list exact": Ends("STEP"),
    "rekindle snapshots export exact -o exact.pt": Ends("2 tensors"),
    "rekindle resume exact": Ends("Resumed exact"),
    "rekindle wait exact": Ends("exact succeeded"),
    "rekindle replay exact --step 91 --until 100": Ends("dentical at step 100"),
    'rekindle diff exact "replay of exact"': Ends("dentical"),
    "rekindle submit --name urgent --ranks 2 --priority 10 train.py": Ends("urgent is job"),
    "rekindle cancel urgent": Ends("Cancelled urgent"),
    "rekindle snapshots export digits": Ends("model.safetensors"),
    "rekindle snapshots export digits --step 400 -o digits.pt": Ends("digits.pt"),
}

IN_RUN_DIRECTORY = {
    "python -m rekindle.training.export snapshots digits.safetensors": Ends("digits.safetensors"),
}
"""Typed where the directory of the job's snapshots is."""

TO_RESUME = {"rekindle resume digits": Ends("Resumed digits")}

AT_THE_END = {
    "rekindle experiment --delete shuffle --yes": Ends("Deleted experiment"),
    "rekindle token create anna --expires 90d --note laptop": Ends("valid until"),
    "rekindle token list": Ends("laptop"),
    "rekindle token revoke anna": Ends("Revoked token"),
    "rekindle audit --person anna": Ends("ACTION"),
    "rekindle wait digits -o json": Ends('"state": "succeeded"'),
    "rekindle logs digits -o json --rank 0 --tail 50": Ends('"text": "'),
    "rekindle wait digits": Ends("digits succeeded"),
    "rekindle delete --yes digits": Ends("Deleted digits"),
    "rekindle delete --yes --filter 'state:failed sweep'": Ends("No job to change matches"),
}


@dataclass
class Lab:
    """A server, and the directory in which the commands are typed."""

    server: ServeProcess
    directory: Path
    client: Client

    def type_all(self, lines: Mapping[str, Ends | Left]) -> None:
        for line, how in lines.items():
            self.type(line, how)

    def type(self, line: str, how: Ends | Left, home: Path | None = None) -> None:
        port = self.server.url.rpartition(":")[2]
        process = subprocess.Popen(
            ["bash", "-c", f"{line.replace('8700', port)}\nexit $?"],  # two commands: bash stays, as people's shells do
            cwd=self.directory,
            env=self._environment(home or self.server.home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        printed: list[str] = []
        reader = threading.Thread(target=_collect, args=(process, printed))
        reader.start()
        if isinstance(how, Left):
            awaited = f"{line!r} has printed {how.sign!r}"
            until(lambda: how.sign in "".join(printed) or process.poll() is not None, awaited, timeout=_LONG)
            os.killpg(process.pid, signal.SIGINT)
        code = process.wait(timeout=_LONG)
        reader.join(timeout=10)
        output = "".join(printed)
        assert (code, "Traceback" in output) == (how.code, False), f"{line}\n{output}"
        assert (how.sign if isinstance(how, Left) else how.shows) in output, f"{line}\n{output}"

    def _environment(self, home: Path) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        asked = {"PATH": path, "HOME": str(self.directory.parent), "OMP_NUM_THREADS": "1", "SHELL": "/bin/bash"}
        return environment(home, REKINDLE_TOKEN=self.server.token, REKINDLE_PORT="0", **asked)

    def clear_queue(self) -> None:
        for job in self.client.jobs(state="queued"):
            if job["name"] != "digits":
                self.client.cancel(job["id"])

    def digits(self) -> str:
        return next(self.client.jobs(name="digits"))["id"]


def _collect(process: "subprocess.Popen[str]", printed: list[str]) -> None:
    assert process.stdout is not None
    printed.extend(iter(process.stdout.readline, ""))
    process.stdout.close()


@pytest.fixture
def lab(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    directory = tmp_path / "lab"
    directory.mkdir()
    shutil.copy(Path(__file__).parent / "scripts" / "train.py", directory)
    (directory / "rates.toml").write_text(blocks("toml", "docs/experiments.md")[0].text)
    (directory / "rates.py").write_text(blocks("python", "docs/experiments.md")[0].text)
    (broken,) = blocks("python", "docs/troubleshooting.md")
    _, exact = blocks("python", "docs/quickstart.md")
    (directory / "broken.py").write_text(broken.text)
    (directory / "exact.py").write_text(exact.text.replace("sleep(0.05)", "sleep(0.02)"))
    monkeypatch.setenv("SEEN_ENOUGH", str(tmp_path / "enough"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    server = ServeProcess(home, cpu_slots=2)
    server.start()
    with Client.from_home(Settings(home=home)) as client:
        yield Lab(server, directory, client)
        for job in client.jobs():
            if not is_settled(job):
                client.cancel(job["id"])
                client.wait(job["id"])
    server.stop()


def test_every_shown_command_is_run_or_is_on_the_list_with_a_reason() -> None:
    shown = {line for _, line in commands() if not of_an_example(line)}
    parts = (SERVERS, WHILE_TRAINING, TO_HOLD, WHILE_HELD, IN_RUN_DIRECTORY, TO_RESUME, AT_THE_END)
    run = {line for part in parts for line in part}
    assert shown - run - NOT_RUN.keys() == set(), "say in this file how it is run, or why not"
    assert (run | NOT_RUN.keys()) - shown == set(), "no page shows it any more"


def of_an_example(line: str) -> bool:
    return any(word in EXAMPLES for word in shlex.split(line))


def test_every_command_that_runs_an_example_is_understood() -> None:
    for line in [line for _, line in commands() if of_an_example(line)]:
        program, *words = shlex.split(line)
        assert program == "rekindle", line
        parse(words)


def test_every_test_and_measurement_that_a_page_names_is_there() -> None:
    named = {(page.name, name) for page in pages() for name in re.findall(r"\btests/[\w/]+\.py", page.read_text())}
    assert [(page, name) for page, name in sorted(named) if not (ROOT / name).is_file()] == []


@pytest.mark.timeout(900)
def test_the_shown_commands_do_what_they_say(lab: Lab, tmp_path: Path) -> None:
    for number, (line, how) in enumerate(SERVERS.items()):
        lab.type(line, how, home=tmp_path / f"other-{number}")
    lab.type_all(WHILE_TRAINING)
    lab.clear_queue()
    lab.type_all(TO_HOLD)
    job_id = lab.digits()
    until(lambda: is_settled(lab.client.job(job_id)), "the job is held", timeout=_LONG)
    step = str(lab.client.snapshots(job_id)["items"][0]["step"])
    lab.type_all({line.replace("400", step): how for line, how in WHILE_HELD.items()})
    snapshots = lab.directory / "snapshots"
    snapshots.symlink_to(lab.server.home / "runs" / job_id / "snapshots")
    lab.type_all(IN_RUN_DIRECTORY)
    snapshots.unlink()
    lab.type_all(TO_RESUME)
    (tmp_path / "enough").touch()
    lab.type_all(AT_THE_END)
    _run_client_page(lab)


def _run_client_page(lab: Lab) -> None:
    """The programs of docs/client.md, one after the other."""
    signs = ("succeeded after 0 restarts", "epoch ")
    programs = blocks("python", "docs/client.md")
    assert len(programs) == len(signs)
    for program, sign in zip(programs, signs, strict=True):
        (lab.directory / "program.py").write_text(program.text)
        lab.type("python program.py", Ends(sign))
