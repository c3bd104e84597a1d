"""The page of all events: of the stream, of a job's history, of notifications and of the journal."""

import inspect
from collections.abc import Iterator
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any

from docs.reference.enums import meanings
from docs.reference.markdown import GENERATED, code, summary, table
from rekindle.contract.run_dir.journal import Record, RecordType
from rekindle_service.config.notification_targets import EventType

STREAM = {
    "hello": "First: `version`, the version that the next change exceeds, and `server_started_at`.",
    "job": "A job has changed: the job as `GET /api/v1/jobs/{job_id}` answers it. The id of the event is its version.",
    "deleted": "A job was deleted: `id`.",
    "ranks": "Of a followed job: `job`, `attempt`, and the ranks as `GET /api/v1/jobs/{job_id}/ranks` answers them. "
    "Sent when they change, and every 5 seconds for the age of their heartbeats.",
    "metrics": "Of a followed job: `job`, `attempt`, `file`, the byte `offset` and `next_offset` in it, and `points`, "
    "each with `step`, `epoch`, `at` and `values`.",
    "log": "Of a followed log: `job`, `attempt`, `rank`, `stream`, the byte `offset` and `next_offset`, and `text`.",
}
"""The events of the stream with what they mean."""

HISTORY = {
    "submitted": "The job was submitted.",
    "state": "The job went from `from_state` to `to_state`; `reason` says why.",
    "intent": "A person, or the server, wants the job to be held, drained, resumed or cancelled.",
    "changed": "A person has changed the name, priority, failure limit, tags or note; or the server a notice.",
    "preempt": "A job of higher priority gets the slots; `reason` names it and its owner.",
    "resize": "The job gets more or fewer slots.",
    "device": "A slot of the job is not used any more: a person or a fault has taken it.",
    "device_check": "A device check has ended: what its replays have shown.",
    "pruned": "Snapshots, output or metrics were removed to free space.",
    "mirror_failed": "Nothing is copied off the box any more; `reason` says why and since when.",
    "chaos": "A fault was injected on request.",
    "snapshot_skipped": "A damaged snapshot was skipped for the one before, or the one to resume from was gone.",
    "checkpoint_torn": "A checkpoint of the script that was not completely written was moved away.",
    "rolled_back": "The run resumed from a snapshot that a person chose; later ones were quarantined.",
    "stalled": "An attempt makes no progress, long before that counts as a hang.",
    "progress": "An attempt that was stalled makes progress again.",
    "straggler": "The other ranks wait for one rank, or no longer do.",
    "records_skipped": "The journal has records that are malformed.",
    "left_out": "More events came at once than the history keeps.",
}
"""The kinds of event in the history of a job."""

_INTRODUCTION = """\
Four things are called events. The **stream** shows clients what changes, the **history** is what a job has been
through, **notifications** are sent to webhooks and commands, and the **journal** is the file from which all else about
attempts is derived."""


def lines() -> Iterator[str]:
    """The whole page."""
    yield from ("# Events", "", GENERATED, "", *_INTRODUCTION.splitlines(), "")
    yield from ("## Event stream", "", "`GET /api/v1/events` is a stream of server-sent events with JSON as data.", "")
    yield from table(("event", "data"), ((code(name), means) for name, means in STREAM.items()))
    yield from (
        "## History of a job",
        "",
        "`GET /api/v1/jobs/{job_id}/events` lists them, oldest first, by `kind`.",
        "",
    )
    yield from table(("kind", "means"), ((code(name), means) for name, means in HISTORY.items()))
    yield from (
        "## Notifications",
        "",
        "A receiver names the `events` that it gets: [Notifications](../notifications.md).",
        "",
    )
    found = meanings(EventType)
    yield from table(("event", "sent when"), ((code(each.value), found[each.name]) for each in EventType))
    yield from ("## Journal", "", *_JOURNAL.splitlines(), "")
    order = list(RecordType)
    for record in sorted(_records(Record), key=lambda each: order.index(each.type)):
        yield from _record(record)


_JOURNAL = """\
`journal.jsonl` in the run directory of a job: one JSON object a line, written by the keeper alone. Each has `type`, and
`at`, the seconds since the epoch."""


def _records(base: type[Record]) -> Iterator[type[Record]]:
    """The classes of records."""
    for record in base.__subclasses__():
        if record.type is not None:
            yield record
        yield from _records(record)


def _record(record: type[Record]) -> Iterator[str]:
    documentation = inspect.getdoc(record) or ""
    if documentation.startswith(f"{record.__name__}("):
        raise ValueError(f"{record.__name__} has no docstring: say what has happened when it is written")
    yield from (f"### {record.type}", "", summary(documentation), "")
    own = [each for each in fields(record) if each.name not in {inherited.name for inherited in fields(Record)}]
    yield from table(
        ("field", "type", "default"), ((code(each.name), _type(each.type), _default(each)) for each in own)
    )


def _type(annotation: Any) -> str:
    """The plain type of a field: limits are those of the journal's reader."""
    if inspect.isclass(annotation) and not hasattr(annotation, "__args__"):
        return {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}.get(
            annotation.__name__, annotation.__name__
        )
    if hasattr(annotation, "__metadata__"):
        return _type(annotation.__origin__)
    parts = [each for each in getattr(annotation, "__args__", ()) if each is not type(None)]
    if getattr(annotation, "__origin__", None) is list:
        return f"list of {_type(parts[0])}"
    return f"{' or '.join(map(_type, parts))} or null"


def _default(field: Any) -> str:
    if field.default_factory is not MISSING:
        return "none"
    if field.default is MISSING:
        return ""
    if isinstance(field.default, StrEnum):
        return code(repr(field.default.value))
    return code("null" if field.default is None else repr(field.default))
