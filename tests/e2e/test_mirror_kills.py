"""Copier, keeper, server and network are killed while copies are sent: none looks complete and is not.

The servers are moto's (``pip install 'moto[server]'``), gcp-storage-emulator and a real sshd: ``--soak 100``.
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
KINDS = ["path", "s3", "gs", "sftp"]


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
        copies.check()
        print(done, seed, len(copies.checked))
        steps = max(Manifest.parse(each.encode()).step for each in copies.checked)
        assert_resumes_elsewhere(tmp_path / "other", off, job.id, steps)


def assert_resumes_elsewhere(home: Path, off: Place, job_id: str, steps: int) -> None:
    """It continues after at most ``steps`` steps, with the same bits to an end that the original never came to."""
    home.mkdir(mode=0o700)
    epochs = steps // 20 + 30
    with ServeProcess(home, environment=off.environment), Client.from_home(Settings(home=home)) as client:
        made = rekindle(home, "import", f"{off.url}/{job_id}", "-o", "id", variables=dict(off.environment))
        assert made.returncode == 0, made.stderr
        imported = made.stdout.strip()
        client.cancel(imported)
        assert client.wait(imported)["state"] == "cancelled"
        resumed = ServedJob(client, home, body(epochs, 0, continue_from=imported))
        whole = ServedJob(client, home, body(epochs, 0))
        assert resumed.finish(600) == whole.finish(600) == "succeeded"
        assert (client.attempts(resumed.id)[0]["resumed_from_step"] or 0) > 0
        assert resumed.weights() == whole.weights()


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


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["s3", "sftp"])
def test_credentials_that_expire_stop_copies_alone_until_they_are_renewed(kind: str, tmp_path: Path) -> None:
    with place(kind, tmp_path) as off:
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        with ServeProcess(home, environment=off.environment), Client.from_home(Settings(home=home)) as client:
            job = ServedJob(client, home, body(100_000, 0.02, mirror=off.url))

            def latest(copied: str = "step") -> int:
                return max((each["step"] for each in client.snapshots(job.id)["items"] if each[copied]), default=0)

            until(lambda: latest("mirrored"), "a snapshot is copied")
            for outages in (1, 2):
                off.admit(False)
                notice = until(lambda: client.job(job.id)["notice"], "it is noticed", 60)
                assert notice.startswith("Nothing is mirrored to"), notice
                print(notice)
                then = latest()
                until(lambda: latest() > then + 100, "training goes on")  # noqa: B023
                assert latest("mirrored") <= then
                off.admit(True)
                until(lambda: latest("mirrored") > then, "copies go on", 120)  # noqa: B023
                until(lambda: client.job(job.id)["notice"] is None, "the notice goes")
                assert [each["kind"] for each in client.job_events(job.id)].count("mirror_failed") == outages
            client.cancel(job.id)
            assert client.wait(job.id)["state"] == "cancelled"
