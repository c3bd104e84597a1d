"""Device checks of real jobs: a stand-in for the driver has four GPUs, the scripts compute on the processor.

No GPU takes part: what a faulty one would compute, the script does where it sees the UUID of that one.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_process import rekindle
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from fakes import nvidia_machine
from fakes.nvidia_driver import HAS_COMPILER
from plain_torchrun import SCRIPTS
from rekindle.contract.files import read_json
from rekindle_service.client import Client, Job
from rekindle_service.config.settings import Settings

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="needs gcc")
SCRIPT = SCRIPTS / "checked.py"
_LONG = 180.0  # seconds


@pytest.fixture
def served_gpus(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServeProcess]:
    (driver := tmp_path / "driver").mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvidia_machine.build(driver)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with ServeProcess(home) as server:
        yield server


def submit(client: Client, *args: str, **options: object) -> Job:
    body = {"script": SCRIPT.name, "args": list(args), "code": {"path": str(SCRIPT.parent)}, "device": "cuda:0"}
    return client.submit({**body, "env": {"OMP_NUM_THREADS": "1"}, **options})


def notice_of_check(client: Client, job: Job) -> str:
    def found() -> str:
        notice = client.job(job["id"])["notice"] or ""
        return notice if notice.startswith("Device check") else ""

    return until(found, "the check has ended", _LONG)


def replays(client: Client, job: Job) -> list[Job]:
    return [each for each in client.jobs() if each["name"].startswith(f"replay of {job['name']}")]


def disabled(client: Client) -> dict[str, str]:
    return {slot["name"]: slot["unusable"] for slot in client.devices()["items"] if slot["disabled"]}


def test_a_gpu_that_computes_wrongly_is_disabled_although_the_server_is_killed_in_between(
    served_gpus: ServeProcess, home: Path
) -> None:
    with Client.from_home(Settings(home=home)) as client:
        job = submit(client, "device", "GPU-0000", check_device=True)
        assert client.wait(job["id"])["outcome"]["class"] == "nan"
        until(lambda: len(replays(client, job)) >= 1, "a replay was submitted", _LONG)
        served_gpus.kill()
        served_gpus.start()
        until(lambda: len(replays(client, job)) >= 3, "the check goes on", _LONG)
        served_gpus.kill()
        served_gpus.start()
        notice = notice_of_check(client, job)
        assert "other bits on cuda:0 than on cuda:1 and cuda:" in notice, notice
        assert "First difference: step 160, parameters of weight" in notice, notice
        assert list(disabled(client)) == ["cuda:0"]
        assert f"in job {job['number']} (replays: jobs " in disabled(client)["cuda:0"]
        assert sorted(each["continue_step"] for each in replays(client, job)) == [150] * 4
        shown = rekindle(home, "show", job["id"]).stdout
    assert "notice" in shown
    assert "cuda:0 is disabled." in " ".join(shown.split())


def test_a_spike_of_a_running_job_is_checked_at_its_end_and_a_fault_that_has_passed_disables_nothing(
    served_gpus: ServeProcess, home: Path, tmp_path: Path
) -> None:
    mark, end = tmp_path / "once", tmp_path / "end"
    mark.touch()
    args = ("once", str(mark), "--steps", "400", "--until", str(end))
    with Client.from_home(Settings(home=home)) as client:
        job = submit(client, *args, check_device=True, digest=10)
        run_dir = home / "runs" / job["id"]
        until(lambda: client.job(job["id"])["checked_step"], "the check knows of the spike", _LONG)
        until(lambda: "loss spike at step 161: " in (client.job(job["id"])["notice"] or ""), "the notice is shown")
        assert read_json(run_dir / "pins.json") == {"steps": [150]}
        assert replays(client, job) == []
        end.touch()
        assert client.wait(job["id"])["state"] == "succeeded"
        notice = notice_of_check(client, job)
        assert notice.startswith("Device check of step 161: the replays are equal and the original is not"), notice
        assert "First difference: step 160, parameters of weight" in notice
        assert disabled(client) == {}
        assert read_json(run_dir / "pins.json") == {"steps": []}


def test_a_check_on_request_finds_a_script_that_is_not_deterministic(served_gpus: ServeProcess, home: Path) -> None:
    with Client.from_home(Settings(home=home)) as client:
        job = submit(client, "noise")
        refused = rekindle(home, "replay", job["id"], "--step", "20", "--check-device")
        assert refused.returncode != 0
        assert client.wait(job["id"])["state"] == "succeeded"
        done = rekindle(home, "replay", job["id"], "--step", "20", "--check-device", timeout=_LONG)
        assert done.returncode == 0, done.stderr
        said = " ".join((done.stdout + done.stderr).split())
        assert "Device check of step 20: the replays differ on one device" in said, said
        assert disabled(client) == {}
