"""What the server reads for a submission, under each way of isolation: whatever its paths lead to meanwhile."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.serve_process import ServeProcess
from rekindle_service.client import Client, ProblemError
from security.isolated_server import client_of, needs_root
from swaps import swapping

NOBODY = pwd.getpwnam("nobody").pw_uid
WAYS = {
    # name: (user of the server, settings)
    "user": (None, {"job_users": '{"*": "nobody"}'}),
    "sandbox": ("games", {"sandbox": "true", "private_jobs": "true"}),
}
pytestmark = [needs_root, pytest.mark.long]


class Isolated:
    """A server with isolated jobs, and a directory of somebody who submits."""

    def __init__(self, home: Path, server: ServeProcess, client: Client, uid: int) -> None:
        self.home, self.server, self.client, self.uid = home, server, client, uid
        self.directory = home.parent / "of somebody"
        self.directory.mkdir(mode=0o755)
        os.chown(self.directory, NOBODY, NOBODY)
        (home / "backups").mkdir(exist_ok=True)
        self.secret = home / "backups" / "notes.txt"
        self.secret.write_text("of the server")
        self.secret.chmod(0o600)
        for path in (self.secret.parent, self.secret):
            os.chown(path, uid, uid)
        self.token = (home / "token").read_text().strip()

    def write(self, name: str, text: str) -> Path:
        """A file of the one who submits, which everybody may read."""
        path = self.directory / name
        for parent in reversed(path.relative_to(self.directory).parents[:-1]):
            (self.directory / parent).mkdir(mode=0o755, exist_ok=True)
            os.chown(self.directory / parent, NOBODY, NOBODY)
        path.write_text(text)
        path.chmod(0o644)
        os.chown(path, NOBODY, NOBODY)
        return path

    def submit(self, code: dict[str, str], **options: Any) -> str | None:
        """The id of a job that waits, None where the server refuses it: in words that show nothing."""
        try:
            return str(self.client.submit({"script": "train.py", "code": code, "hold": True, **options})["id"])
        except ProblemError as error:
            refusal = str(error.problem)
        assert self.token not in refusal
        return None

    def leaked(self, job_id: str) -> list[Path]:
        """Files of the job that show what is the server's."""
        found = [path for path in (self.home / "runs" / job_id).rglob("*") if path.is_file() and not path.is_symlink()]
        contents = {path: path.read_bytes() for path in found}
        return [path for path in found if self.token.encode() in contents[path] or b"of the server" in contents[path]]


@pytest.fixture(params=["user", "sandbox"])
def isolated(request: pytest.FixtureRequest) -> Iterator[Isolated]:
    user, settings = WAYS[request.param]
    with client_of(user, settings) as (home, server, client, uid):
        yield Isolated(home, server, client, uid)


def test_nothing_leaks_into_a_copy_whose_source_is_swapped_for_links(isolated: Isolated) -> None:
    isolated.write("code/train.py", "import torch\n")
    code = isolated.write("code/data/notes.txt", "of somebody").parents[1]
    goals = {
        code / "train.py": isolated.home / "token",
        code / "data": isolated.secret.parent,
        code: isolated.home,
    }
    before = files_of(isolated.home)
    submitted, accepted = 0, list[str]()
    with swapping(goals, NOBODY, pause=0.004) as swaps:
        while submitted < 200 or swaps.count < 10_000:
            others = {"continue_from": accepted[-1]} if accepted and submitted % 5 == 0 else {}
            submitted += 1
            if (job_id := isolated.submit({"path": str(code)}, **others)) is not None:
                assert isolated.leaked(job_id) == []
                accepted.append(job_id)
    assert len(accepted) > 20, (submitted, "submitted, and too few accepted")
    assert files_of(isolated.home) == before


def test_what_the_user_of_the_job_may_not_read_is_in_no_job_of_any_kind(isolated: Isolated) -> None:
    """A sandbox alone is different: its jobs run as the server's user, and only the server is hidden from them."""
    if isolated.uid != 0:
        pytest.skip("needs jobs of another user")
    closed = isolated.home.parent / "closed"
    closed.mkdir(mode=0o700)
    (closed / "train.py").write_text("of the server")
    code = isolated.write("code/train.py", "of somebody").parent
    (closed / "key").write_text("of the server")
    subprocess.run(["git", "-C", closed, "init", "--quiet"], check=True)
    old = isolated.submit({"path": str(code)})
    assert old is not None
    for asked in ({"path": str(closed)}, {"git": f"file://{closed}"}):
        assert isolated.submit(asked) is None
        assert isolated.submit(asked, continue_from=old) is None
        trials = {"name": "e", "base": {"script": "train.py", "code": asked}, "matrix": {"seed": [1, 2]}}
        with pytest.raises(ProblemError):
            isolated.client.submit_experiment(trials)
    (code / "link").symlink_to(closed / "key")
    job_id = isolated.submit({"path": str(code)}, keep_links=True)
    assert job_id is not None
    assert isolated.leaked(job_id) == []
    owners = {path.lstat().st_uid for path in (isolated.home / "runs" / job_id / "code").rglob("*")}
    assert owners == {NOBODY}


def files_of(home: Path) -> dict[str, tuple[int, int, bytes]]:
    """Owner, mode and content of what no submission may change."""
    paths = [home / "token", *(home / "backups").glob("*.txt"), *home.glob("*.toml")]
    return {path.name: (path.stat().st_uid, path.stat().st_mode, path.read_bytes()) for path in paths}


def git(directory: Path, *words: str) -> None:
    argv = ["git", "-C", str(directory), "-c", "user.name=t", "-c", "user.email=t@t", *words]
    subprocess.run(argv, check=True, capture_output=True, user=NOBODY, group=NOBODY, env={"PATH": os.environ["PATH"]})


def test_git_shows_nothing_of_the_server_that_a_repository_of_this_machine_links_to(isolated: Isolated) -> None:
    """What git cannot parse it quotes, and its words are the answer."""
    directory = isolated.write("repository/train.py", "import torch\n").parent
    git(directory, "init", "--quiet")
    git(directory, "add", ".")
    git(directory, "commit", "--quiet", "-m", "first")
    if isolated.uid != 0:  # git reads only what is its own user's
        for path in [directory, *directory.rglob("*")]:
            os.chown(path, isolated.uid, isolated.uid)
    code = {"git": f"file://{directory}".replace(" ", "%20")}
    job_id = isolated.submit(code)
    assert job_id is not None
    assert (isolated.home / "runs" / job_id / "code" / "train.py").read_text() == "import torch\n"
    for name in ("packed-refs", "shallow", "objects/info/alternates", "HEAD", "config"):
        link = directory / ".git" / name
        kept = link.read_bytes() if link.exists() else None
        link.unlink(missing_ok=True)
        link.symlink_to(isolated.home / "token")
        isolated.submit(code)
        link.unlink()
        if kept is not None:
            link.write_bytes(kept)
    assert isolated.submit(code) is not None
    assert not list((isolated.home / "runs").glob(".new-git-*"))
