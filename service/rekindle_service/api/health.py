"""Is the server there, and can it do its work? The only routes that tell anything without a token."""

import shutil
from importlib.metadata import version

from fastapi import APIRouter, Response

from rekindle_service.api.schemas import Health, Readiness
from rekindle_service.api.services import Services, Serving
from rekindle_service.store import StorageError

router = APIRouter(tags=["health"])

_LEAST_FREE = 100 << 20  # bytes


@router.get("/healthz")
def healthz() -> Health:
    """The server answers."""
    return Health(status="ok", version=version("rekindle"))


@router.get("/readyz", responses={503: {"model": Readiness}})
def readyz(services: Serving, response: Response) -> Readiness:
    """The server can take jobs: its database answers, its engine runs and its disk has room."""
    checks = {
        "database": _database(services),
        "engine": "ok" if services.engine_alive() else "its thread has ended; see the server's log",
        "disk": _disk(services),
    }
    ready = all(result == "ok" for result in checks.values())
    response.status_code = 200 if ready else 503
    return Readiness(status="ready" if ready else "not ready", checks=checks)


def _database(services: Services) -> str:
    try:
        services.store.version()
    except StorageError as error:
        return "full" if error.full else "cannot be read"
    return "ok"


def _disk(services: Services) -> str:
    free = shutil.disk_usage(services.home.root).free
    return "ok" if free >= _LEAST_FREE else f"{free >> 20} MB free, at least {_LEAST_FREE >> 20} MB are needed"
