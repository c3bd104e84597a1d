"""The real application on a real database in a directory of the test. No engine: rows stay as tests put them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

from fastapi import FastAPI
from starlette.testclient import TestClient

from fakes.launching import fake_launchers
from migrated import provide_database
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import JobState
from rekindle_service.access.access_control import AccessControl
from rekindle_service.access.permissions import Identity, Scope, Via
from rekindle_service.api.app import create_app
from rekindle_service.api.dependencies import AppState
from rekindle_service.config.home import Home
from rekindle_service.config.settings import RetentionRules
from rekindle_service.jobs.device_states import DeviceStates
from rekindle_service.jobs.scheduler_health import SchedulerHealth
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.machine.health import DeviceHealth
from rekindle_service.machine.monitor import MachineMonitor
from rekindle_service.machine.slots import find_machine
from rekindle_service.retention.deletions import Deletions
from rekindle_service.retention.pruner import Pruner
from rekindle_service.scheduler.reconciler import Reconciler
from rekindle_service.scheduler.run_sync import RunSync
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

TOKEN = "token-of-the-tests"
ADMIN = Identity("root", Scope.ADMIN, Via.TOKEN)
MAX_BUNDLE_BYTES = 1_000_000


@dataclass(frozen=True)
class ApiServer:
    """``api`` bears the token, ``stranger`` does not; neither swallows a server error."""

    app: FastAPI
    state: AppState
    api: TestClient
    stranger: TestClient

    def submit(self, code: Path, **fields: Any) -> dict[str, Any]:
        (code / "train.py").write_text("print('hi')\n")
        body = {"script": "train.py", "code": {"path": str(code)}, "device": "cpu", **fields}
        answer = self.api.post("/api/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def run_dir(self, job: dict[str, Any]) -> RunDir:
        return self.state.home.run_dir(job["id"])

    def read_journal(self, job: dict[str, Any]) -> None:
        """Bring what the test has written into the journal of the job into its rows, as the engine would."""
        row = self.state.store.job(job["id"])
        assert row is not None
        RunSync(self.state.store, self.state.home).read_journal(row)

    def move(self, job: dict[str, Any], *states: JobState, **columns: Any) -> None:
        """Lead the job through ``states``, as the engine would."""
        for state in states:
            row = self.state.store.job(job["id"])
            assert row is not None
            moved = self.state.store.transition(row.id, state, expected={row.state}, reason="test", **columns)
            assert moved is not None


def _launch_nothing(job: Job) -> Popen[bytes]:
    raise NotImplementedError(job.id)


@contextmanager
def api_server(root: Path, *, private_jobs: bool = False) -> Iterator[ApiServer]:
    home = Home(root / "home")
    home.create()
    store = Store(provide_database(home.database))
    store.migrate()
    machine = find_machine(cpu_slots=2, environment={"CUDA_VISIBLE_DEVICES": ""})
    launchers = fake_launchers(store, home, machine, _launch_nothing)
    reconciler = Reconciler(store, home, machine, launchers)
    state = AppState(
        home=home,
        store=store,
        machine=machine,
        devices=DeviceStates(store, machine, DeviceHealth()),
        monitor=MachineMonitor(machine, home.root),
        retention=Pruner(home, store, Deletions(home), RetentionRules(keep_bundles_days=7)),
        submitter=Submitter(store, home, launchers),
        access=AccessControl(store, TOKEN, private_jobs=private_jobs),
        host="127.0.0.1",
        max_bundle_bytes=MAX_BUNDLE_BYTES,
        started_at=time.time(),
        stopping=threading.Event(),
        wake=lambda: None,
        scheduler_health=lambda: SchedulerHealth(alive=True, age=0.0),
        prospect=reconciler.prospect,
        outlook=reconciler.outlook,
    )
    app = create_app(state)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    try:
        with (
            TestClient(app, "http://127.0.0.1:8700", headers=bearer) as api,
            TestClient(app, "http://127.0.0.1:8700", follow_redirects=False) as stranger,
        ):
            yield ApiServer(app, state, api, stranger)
    finally:
        state.stopping.set()
        store.close()
