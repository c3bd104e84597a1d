"""Names of jobs for the shell that completes a command line."""

import re
from collections.abc import Iterator

import typer

from rekindle_service.client import Client, Job
from rekindle_service.config.settings import Settings

_PATIENCE = 1.0  # seconds: somebody has pressed Tab
_RECENT = 50
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*")  # what no shell takes for more than a word


def complete_job(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The recent jobs that begin with ``incomplete``, each with what it is; nothing where no server answers."""
    before_the_verb = context.find_root().params
    given = {name: before_the_verb[name] for name in ("home", "url") if before_the_verb.get(name) is not None}
    try:
        with Client.from_home(Settings(**given), timeout=_PATIENCE) as client:
            return list(candidates(list(client.jobs(limit=_RECENT)), incomplete))
    except Exception:  # noqa: BLE001 a shell that completes has no place for an error
        return []


def candidates(jobs: list[Job], incomplete: str) -> Iterator[tuple[str, str]]:
    """Names, each once; ids of jobs whose name is no plain word, and where one has begun to type an id."""
    names = set[str]()
    for job in jobs:
        told = f"job {job['number']}, {job['state']}"
        usable = _PLAIN.fullmatch(job["name"]) is not None and job["name"] not in names
        if usable and job["name"].startswith(incomplete):
            names.add(job["name"])
            yield job["name"], told
        elif (not usable or incomplete) and job["id"].startswith(incomplete):
            yield job["id"], told
