"""`rekindle diff --replay`: replays find the exact step of a difference, and the layer in which it begins."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest

import typer

from rekindle_service.cli.terminal import ExitCode, note, note_connection, working
from rekindle_service.client import Client, Job, JobDiff, Layers, ProblemError

_PLACES = {
    "batch": "data, tensor {} of the batch",
    "forward": "forward, output of {}",
    "backward": "backward, gradient of the output of {}",
    "gradient": "all-reduce, gradient of {}",
    "parameter": "optimizer, {}",
}
"""The phases of a recorded step, in their order."""


def narrowed(client: Client, jobs: Sequence[Job], found: JobDiff) -> JobDiff:
    """``found`` with what replays of both jobs show of the steps in one of which the difference began.

    Raises typer.Exit where they are not waited for, and ProblemError.
    """
    if found["difference"] is None:
        return found
    first, last = (found["last_equal_step"] or 0) + 1, found["difference"]["step"]
    notes, exact = [], found
    if missing := [job for job in jobs if not _has_digests(client, job, first, last)]:
        before = max(first - 1, 1)  # the last equal step: it shows that the replays begin with the same state
        replays = {job["id"]: each for job, each in zip(missing, _replay(client, missing, before, last), strict=True)}
        notes.append(f"Replayed steps {before:,} to {last:,}: {_labels(missing, replays.values())}.")
        exact = client.diff(*(replays.get(job["id"], job)["id"] for job in jobs))
        if exact["difference"] is None:
            notes.append(f"The replays do not show the difference: {exact['summary']}")
            for job in missing:
                own = client.diff(job["id"], replays[job["id"]]["id"])["summary"]
                notes.append(f"{job['name']} (job {job['number']}) and its replay: {own}")
            return {**found, "notes": notes, "next_command": None}
        last = exact["difference"]["step"]
    recorded = _replay(client, jobs, last, last, record=True)
    notes += [f"Recorded step {last:,}: {_labels(jobs, recorded)}.", _first_layer(client, recorded)]
    return {**exact, "causes": found["causes"], "code": found["code"], "notes": notes, "next_command": None}


def _has_digests(client: Client, job: Job, first: int, last: int) -> bool:
    """Whether there is one of each step; a page of them is enough, since the interval is even."""
    steps = [each["step"] for each in client.digests(job["id"], after=first - 1)["items"]]
    wanted = last - first + 1
    return steps[:wanted] == list(range(first, first + min(wanted, max(len(steps), 1))))


def _replay(client: Client, jobs: Sequence[Job], first: int, last: int, *, record: bool = False) -> list[Job]:
    """The replays, when they have ended. Raises ProblemError where one is rejected: then the others are cancelled."""
    replays: list[Job] = []
    try:
        replays.extend(client.replay(job["id"], first, until=last, record=record) for job in jobs)
    except ProblemError:
        for each in replays:
            client.cancel(each["id"])
        raise
    names = ", ".join(str(each["number"]) for each in replays)
    try:
        with working(f"Replaying steps {first:,} to {last:,}, jobs {names}"):
            return [client.wait(each["id"], note_connection) for each in replays]
    except KeyboardInterrupt:
        note(f"The replays keep running: jobs {names}.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _labels(jobs: Sequence[Job], replays: Iterable[Job]) -> str:
    """``one as job 7, other as job 9``."""
    return ", ".join(f"{job['name']} as job {each['number']}" for job, each in zip(jobs, replays, strict=True))


def _first_layer(client: Client, replays: Sequence[Job]) -> str:
    """A sentence on the first tensor of the recorded step that differs, and on which ranks."""
    sizes = {each["world_size"] or 0 for each in replays}
    if len(sizes) > 1:
        return "The layers are not compared, since the numbers of ranks differ."
    try:
        records = [[client.layers(each["id"], rank) for each in replays] for rank in range(*sizes)]
    except ProblemError as error:
        return f"The layers are not compared: {error}."
    found = {rank: place for rank, pair in enumerate(records) if (place := first_difference(*pair)) is not None}
    if not found:
        return "No recorded tensor differs in that step."
    first = min(found.values())
    at = [str(rank) for rank, place in found.items() if place[:2] == first[:2]]
    return f"The difference begins on {'rank' if len(at) == 1 else 'ranks'} {', '.join(at)}: {first[2]}."


def first_difference(one: Layers, other: Layers) -> tuple[int, int, str] | None:
    """Where two records of a step begin to differ: number of the phase, position in the record, and both in words."""
    if one["samples"] != other["samples"]:
        return 0, -1, "data, order of the samples"
    for index, (mine, its) in enumerate(zip_longest(one["tensors"], other["tensors"])):
        if mine is None or its is None or any(mine[key] != its[key] for key in ("phase", "name", "digest")):
            tensor = mine or its
            place = _PLACES[tensor["phase"]].format(tensor["name"] or "the model")
            norms = f" (norms {mine['norm']:.6g} and {its['norm']:.6g})" if mine and its else ""
            return list(_PLACES).index(tensor["phase"]), index, place + norms
    return None
