"""Liveness and readiness of the server, without a token."""

import shutil
from importlib.metadata import version

from fastapi import APIRouter, Response

from rekindle_service.api.dependencies import AppState, AppStateDep
from rekindle_service.api.schemas.machine import Health, Readiness
from rekindle_service.store import StorageError

router = APIRouter(tags=["health"])

_MIN_FREE_BYTES = 100 << 20


@router.get("/healthz")
def healthz() -> Health:
    """Check that the server responds."""
    return Health(status="ok", version=version("rekindle"))


@router.get("/readyz", responses={503: {"model": Readiness}})
def readyz(state: AppStateDep, response: Response) -> Readiness:
    """Check that the server can accept jobs: the database responds, the scheduler runs, the disk has free space."""
    checks = {
        "database": _database(state),
        "scheduler": "ok" if state.reconciler_alive() else "its thread has ended; see the server's log",
        "disk": _disk(state),
    }
    ready = all(result == "ok" for result in checks.values())
    response.status_code = 200 if ready else 503
    return Readiness(status="ready" if ready else "not ready", checks=checks)


def _database(state: AppState) -> str:
    try:
        state.store.version()
    except StorageError as error:
        return "full" if error.full else "unavailable"
    return "ok"


def _disk(state: AppState) -> str:
    free = shutil.disk_usage(state.home.root).free
    return "ok" if free >= _MIN_FREE_BYTES else f"{free >> 20} MB free, at least {_MIN_FREE_BYTES >> 20} MB are needed"
