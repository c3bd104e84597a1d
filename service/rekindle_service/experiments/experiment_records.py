"""The row of an experiment as a file of the home, from which it is made again where the database was lost."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rekindle.contract.files import write_json
from rekindle.contract.run_dir.json_records import Amount, Count, JsonRecord, read_record
from rekindle_service.config.home import Home, is_job_id
from rekindle_service.store.tables import Experiment


@dataclass(frozen=True, slots=True)
class ExperimentRecord(JsonRecord):
    """Columns of an experiment. Its jobs say in their own directories that they belong to it."""

    id: str
    number: Count
    name: str
    title: str
    definition: dict[str, Any]
    machine: dict[str, Any]
    notes: list[str]
    created_at: Amount
    command: str | None = None
    owner: str | None = None
    idempotency_key: str | None = None
    request_digest: str | None = None


def write_record(home: Home, experiment: Experiment, idempotency_key: str | None) -> None:
    """Precondition: its jobs are not in the database yet. Raises OSError."""
    values = {**experiment.model_dump(), "idempotency_key": idempotency_key}
    home.experiments.mkdir(mode=0o700, exist_ok=True)
    write_json(home.experiment(experiment.id), ExperimentRecord.from_json(values).to_json())


def remove_record(home: Home, experiment_id: str) -> None:
    """Precondition: the experiment is not in the database any more. Raises OSError."""
    home.experiment(experiment_id).unlink(missing_ok=True)


def stored_experiments(home: Home) -> Iterator[Experiment]:
    """Every experiment that was submitted in this home, also one without jobs; unreadable files are omitted."""
    with suppress(FileNotFoundError):
        for path in sorted(home.experiments.glob("*.json")):
            record = read_record(path, ExperimentRecord)
            if record is not None and is_job_id(record.id) and path.stem == record.id:
                yield Experiment(**record.to_json())
