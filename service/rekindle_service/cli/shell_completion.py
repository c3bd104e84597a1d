"""Completion of job names in a shell."""

import re
from collections.abc import Iterator

import typer

from rekindle_service.client import Client, Job
from rekindle_service.config.settings import Settings

_TIMEOUT = 1.0  # seconds: a person has pressed Tab
_RECENT = 50
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*")  # one word in every shell


def complete_job(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The recent jobs that start with ``incomplete``, each with a description; none where no server answers."""
    options = context.find_root().params
    given = {name: options[name] for name in ("home", "url") if options.get(name) is not None}
    try:
        with Client.from_home(Settings(**given), timeout=_TIMEOUT) as client:
            return list(candidates(list(client.jobs(limit=_RECENT)), incomplete))
    except Exception:  # noqa: BLE001 a shell cannot show an error while it completes
        return []


def candidates(jobs: list[Job], incomplete: str) -> Iterator[tuple[str, str]]:
    """Each name once; ids of jobs whose name is no plain word, and those that start with what was typed."""
    names = set[str]()
    for job in jobs:
        description = f"job {job['number']}, {job['state']}"
        usable = _PLAIN.fullmatch(job["name"]) is not None and job["name"] not in names
        if usable and job["name"].startswith(incomplete):
            names.add(job["name"])
            yield job["name"], description
        elif (not usable or incomplete) and job["id"].startswith(incomplete):
            yield job["id"], description
