"""Copier, keeper, server and network are killed while copies are sent: none looks complete and is not.

The S3 server is moto's, as a process (``pip install 'moto[server]'``), SFTP a real sshd: ``--soak 100``.
"""

import hashlib
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cli_process import rekindle
from e2e.off_box import Place, place
from e2e.serve_process import ServeProcess
from e2e.served_job import ServedJob
from e2e.waiting import until
from plain_torchrun import SCRIPTS
from rekindle.contract.locks import lock_holder
from rekindle.contract.run_dir.snapshot_dir import Manifest
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings
from rekindle_service.mirror.remote import Remote

SCRIPT = SCRIPTS / "mirrored.py"
KINDS = ["path", "s3", "sftp"]


class Copies:
    """What is listed off the box, checked to the last byte."""

    def __init__(self, off: Place, job_id: str) -> None:
        self._off, self._id = off, job_id
        self.checked: set[str] = set()  # manifests

    def check(self) -> None:
        """A part may be gone by now where the copier has published a later index meanwhile: then that is checked."""
        for _ in range(20):
            remote = Remote(self._off.direct, self._id)
            index = remote.read_index()
            if index is None:
                return
            with suppress(FileNotFoundError):
                for each in index.snapshots:
                    for name, record in Manifest.parse(each.manifest.encode()).files.items():
                        digest = hashlib.sha256(b"".join(map(remote.get, each.files[name].parts))).hexdigest()
                        assert digest == record.sha256, (each.step, name)
                    self.checked.add(each.manifest)
                return
        raise AssertionError("each index lacks a part")


def body(epochs: int, pause: float, **more: object) -> dict[str, object]:
    args = [str(epochs), str(pause), "24"]
    code = {"path": str(SCRIPT.parent)}
    return {"script": SCRIPT.name, "args": args, "code": code, "device": "cpu", "ranks": 1, **more}


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_no_copy_looks_complete_and_is_not_whatever_is_killed(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills, seed = request.config.getoption("--soak"), random.randrange(1 << 32)
    chance, done = random.Random(seed), dict.fromkeys(("copier", "keeper", "server", "network"), 0)
    with place(kind, tmp_path) as off:
        for name, value in off.direct_environment.items():
            monkeypatch.setenv(name, value)
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        with ServeProcess(home, environment=off.environment) as server:
            with Client.from_home(Settings(home=home)) as client:
                job = ServedJob(client, home, body(100_000, 0.02, mirror=off.url, mirror_limit=40))
            copies, lock = Copies(off, job.id), home / "mirrors" / f"{job.id}.lock"
            for number in range(kills):
                pid = until(lambda: lock_holder(lock) if lock.exists() else None, f"a copier runs, {seed}", 120)
                time.sleep(chance.random())  # anywhere in its work
                target = chance.choice(list(done))
                done[target] += 1
                if target == "copier":
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                elif target == "keeper":
                    until(lambda: lock_holder(job.run_dir.keeper_lock), "a keeper runs", 120)
                    job.kill_keeper()
                elif target == "server":
                    server.kill()
                    server.start()
                else:
                    off.cut()
                    time.sleep(0.5)
                    off.mend()
                copies.check()
                print(f"{number + 1}: {target}, {len(copies.checked)} snapshots checked", flush=True)
            until(lambda: (copies.check(), len(copies.checked))[1] > kills / 10, "more is copied", 120)
            server.kill()
            job.kill_keeper()
        until(lambda: not job.processes(), "the machine is down")
        other = tmp_path / "other"
        other.mkdir(mode=0o700)
        copies.check()
        print(done, seed, len(copies.checked))
        steps = max(Manifest.parse(each.encode()).step for each in copies.checked)
        epochs = steps // 20 + 30
        with ServeProcess(other, environment=off.environment), Client.from_home(Settings(home=other)) as client:
            made = rekindle(other, "import", f"{off.url}/{job.id}", "-o", "id", variables=dict(off.environment))
            assert made.returncode == 0, (made.stderr, seed)
            imported = made.stdout.strip()
            client.cancel(imported)
            assert client.wait(imported)["state"] == "cancelled"
            # the same bits, to an end that the original never came to
            resumed = ServedJob(client, other, body(epochs, 0, continue_from=imported))
            whole = ServedJob(client, other, body(epochs, 0))
            assert resumed.finish(600) == whole.finish(600) == "succeeded"
            assert (client.attempts(resumed.id)[0]["resumed_from_step"] or 0) > 0
            assert resumed.weights() == whole.weights(), seed


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["s3", "sftp"])
def test_wrong_credentials_stop_no_training_and_are_named(kind: str, tmp_path: Path) -> None:
    with place(kind, tmp_path) as off:
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        wrong = {"HOME": str(tmp_path)} if kind == "sftp" else {**off.environment, "AWS_ACCESS_KEY_ID": ""}
        with ServeProcess(home, environment=wrong), Client.from_home(Settings(home=home)) as client:
            job = ServedJob(client, home, body(2, 0, mirror=off.url))
            assert job.finish() == "succeeded"
            notice = until(lambda: client.job(job.id)["notice"], "it is noticed")
            print(notice)
            assert "Nothing is mirrored" in notice
            assert "secret" not in notice
            assert "mirror_failed" in [each["kind"] for each in client.job_events(job.id)]
