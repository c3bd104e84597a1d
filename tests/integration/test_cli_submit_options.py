"""`rekindle submit` against a real server: commands of other launchers, what is copied, restarts, continued jobs."""

from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from cli_process import rekindle
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings

pytestmark = pytest.mark.long


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {"train.py": "import time\ntime.sleep(600)\n", "data/big.bin": "x", "run.sh": "torchrun train.py --lr 1\n"}
    for name, text in files.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "project" / "images").symlink_to("/usr/share")
    return tmp_path / "project"


@pytest.fixture
def client(served_home: Path) -> Iterator[Client]:
    with Client.from_home(Settings(home=served_home)) as client:
        yield client


def test_the_words_of_submit_become_the_right_job(served_home: Path, client: Client, project: Path) -> None:
    def submit(*words: str, cwd: Path = project) -> CompletedProcess[str]:
        return rekindle(served_home, "submit", "--device", "cpu", "--keep-links", "-o", "id", *words, cwd=cwd)

    def job(done: CompletedProcess[str]) -> dict[str, Any]:
        assert done.returncode == 0, done.stderr
        found = client.job(done.stdout.strip())
        return {**found, "directory": client.configuration(found["id"])["directory"]}

    def refused(done: CompletedProcess[str]) -> str:
        assert done.returncode == 2, done.stdout
        return " ".join(done.stderr.replace("│", "").split())

    first = job(submit("--name", "first", "torchrun", "--standalone", "--nproc_per_node=2", "train.py", "--lr", "1"))
    assert (first["ranks"], first["target"]["value"], first["args"]) == (
        {"min": 2, "max": 2},
        "train.py",
        ["--lr", "1"],
    )
    waiting = ("--after", "first")

    note = submit(*waiting, "torchrun", "--standalone", "train.py").stderr
    assert "Read as: rekindle submit train.py; rekindle sets --standalone itself" in " ".join(note.split())
    assert "contradict each other" in refused(submit("--ranks", "2", "--nproc_per_node", "3", "train.py"))
    assert "`rekindle submit train.py --lr 1`" in refused(submit("./run.sh"))
    swept = rekindle(served_home, "sweep", "--device", "cpu", "torchrun", "train.py", "--lr", "1", cwd=project)
    assert "Read as: rekindle sweep train.py --lr 1" in refused(swept)
    assert "`rekindle sweep train.py --lr 1`" in refused(rekindle(served_home, "sweep", "./run.sh", cwd=project))

    late = refused(submit("torchrun", "-m", "train", "--ranks", "2", "--hold"))
    assert "rekindle submit --ranks 2 --hold --device cpu --keep-links -o id torchrun -m train`" in late
    assert "torchrun -m train -- --ranks 2 --hold`" in late
    own = job(submit(*waiting, "train.py", "--", "--ranks", "2"))
    assert (own["ranks"], own["args"]) == ({"min": 1, "max": 1}, ["--ranks", "2"])

    elsewhere = project.parent / "elsewhere"
    elsewhere.mkdir()
    outside = job(submit(*waiting, "--nproc_per_node", "3", "../project/train.py", cwd=elsewhere))
    assert (outside["target"]["value"], outside["ranks"]) == ("train.py", {"min": 3, "max": 3})

    restarts = ["--on-restart", "--resume '{latest:*.pt}'", "--on-restart", "{exists:*.pt} --x=1"]
    options = job(submit(*waiting, *restarts, "--exclude", "data/", "--gitignore", "train.py", "{{x}}"))
    assert options["on_restart"] == ["--resume", "{latest:*.pt}", "{exists:*.pt}", "--x=1"]
    assert (options["exclude"], options["gitignore"], options["keep_links"]) == (["data/"], True, True)
    copied = {path.name for path in Path(options["directory"]).iterdir()}
    assert copied == {"train.py", "run.sh", "images"}
    unknown = refused(submit("train.py", "--name={epoch}"))
    assert "{snapshots}" in unknown
    assert "{{epoch}}" in unknown

    assert f"rekindle drain {first['number']}" in refused(submit("--continue", "first", "train.py"))
    client.cancel(first["id"])
    client.wait(first["id"])
    (Path(first["directory"]) / "own.pt").write_text("saved")
    (project / "train.py").write_text("print('new')\n")
    continued = job(submit("--continue", "first", "--on-restart", "--load {latest:*.pt}", "train.py"))
    directory = Path(continued["directory"])
    assert continued["continue_from"] == first["id"]
    assert (directory / "own.pt").read_text() == "saved"
    assert client.wait(continued["id"])["state"] == "succeeded"
    assert [each["args"] for each in client.attempts(continued["id"])] == [["--load", str(directory / "own.pt")]]
    shown = " ".join(rekindle(served_home, "show", continued["id"]).stdout.split())
    assert f"arguments: --load {directory}/own.pt" in shown
