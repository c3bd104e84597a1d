"""The command line of another machine: it knows the server's URL and token, and nothing else of it."""

import json
import shutil
from pathlib import Path

import pytest

from cli_process import rekindle
from e2e.serve_process import ServeProcess

pytestmark = pytest.mark.long


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    (directory / "package").mkdir(parents=True)
    (directory / ".git").mkdir()
    (directory / ".git" / "config").write_text("secret")
    (directory / "package" / "__init__.py").write_text("")
    (directory / "train.py").write_text("import package\n")
    return directory


def test_a_directory_is_uploaded_and_may_be_deleted_afterwards(served: ServeProcess, home: Path, project: Path) -> None:
    server = {"REKINDLE_URL": served.url, "REKINDLE_TOKEN": served.token}
    words = ("submit", "--device", "cpu", "-o", "json", "train.py", "--lr", "0.1")
    done = rekindle(home, *words, cwd=project, variables=server)
    assert done.returncode == 0, done.stderr
    assert f"Uploading {project} (2 files, 15 B, packed" in done.stderr
    job = json.loads(done.stdout)
    assert job["code"]["bundle"].startswith("sha256:")
    again = rekindle(home, "--url", served.url, *words, cwd=project, variables={"REKINDLE_TOKEN": served.token})
    assert json.loads(again.stdout)["code"] == job["code"]
    shutil.rmtree(project)
    copied = served.home / "runs" / job["id"] / "code"
    assert sorted(str(path.relative_to(copied)) for path in copied.rglob("*.py")) == ["package/__init__.py", "train.py"]
    assert not (copied / ".git").exists()
    assert list(home.iterdir()) == []
    for each in (job, json.loads(again.stdout)):
        rekindle(home, "cancel", each["id"], variables=server)
    assert rekindle(home, "wait", job["id"], variables=server).returncode in (0, 3)


def test_on_the_servers_own_machine_nothing_is_uploaded(served: ServeProcess, project: Path) -> None:
    server = {"REKINDLE_URL": f"{served.url}/", "REKINDLE_TOKEN": served.token}
    done = rekindle(served.home, "submit", "--device", "cpu", "-o", "json", "train.py", cwd=project, variables=server)
    assert json.loads(done.stdout)["code"] == {"path": str(project)}
    assert done.stderr == ""


def test_an_experiment_uploads_its_directory(served: ServeProcess, home: Path, project: Path) -> None:
    (project / "rates.toml").write_text('base = {script = "train.py", device = "cpu"}\nmatrix = {"--lr" = [1, 2]}\n')
    server = {"REKINDLE_URL": served.url, "REKINDLE_TOKEN": served.token}
    done = rekindle(home, "experiment", "--file", str(project / "rates.toml"), "-o", "json", variables=server)
    assert done.returncode == 0, done.stderr
    for trial in json.loads(done.stdout)["trials"]:
        job = json.loads(rekindle(home, "show", trial["job"], "-o", "json", variables=server).stdout)
        assert set(job["code"]) == {"bundle"}
        rekindle(home, "cancel", trial["job"], variables=server)


def test_code_that_cannot_be_sent_is_an_error(served: ServeProcess, home: Path, project: Path) -> None:
    server = {"REKINDLE_URL": served.url, "REKINDLE_TOKEN": served.token}
    before = rekindle(home, "ps", "-o", "id", variables=server).stdout
    wrong = rekindle(home, "submit", "train.py", cwd=project, variables={**server, "REKINDLE_TOKEN": "wrong"})
    assert (wrong.returncode, "does not accept this token" in wrong.stderr) == (2, True)
    (project / "out").symlink_to("/etc/passwd")
    linked = rekindle(home, "submit", "train.py", cwd=project, variables=server)
    assert (linked.returncode, "out points to /etc/passwd" in linked.stderr) == (2, True)
    (project / "out").unlink()
    tokenless = rekindle(home, "submit", "train.py", cwd=project, variables={"REKINDLE_URL": served.url})
    assert (tokenless.returncode, "REKINDLE_TOKEN" in tokenless.stderr) == (2, True)
    assert rekindle(home, "ps", "-o", "id", variables=server).stdout == before
