"""What the routes work with, made once by the composition root."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from rekindle_service.api.access import Credentials
from rekindle_service.api.glances import Glances
from rekindle_service.config.home import Home
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.machine.devices import Machine
from rekindle_service.machine.monitor import MachineMonitor
from rekindle_service.store import Store


@dataclass(frozen=True, slots=True)
class Services:
    """Everything behind the HTTP face. ``wake`` tells the engine that there is something to do."""

    home: Home
    store: Store
    machine: Machine
    watch: MachineMonitor
    submitter: Submitter
    credentials: Credentials
    host: str
    most_bundle_bytes: int
    started_at: float  # seconds since the epoch
    stopping: threading.Event
    wake: Callable[[], None]
    engine_alive: Callable[[], bool]
    glances: Glances = field(default_factory=Glances)


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Serving = Annotated[Services, Depends(_services)]
