"""The row of an experiment as a file of the home, from which it is made again where the database was lost."""

from collections.abc import Iterator
from contextlib import suppress

from pydantic import ValidationError

from rekindle.contract.files import read_json, write_json
from rekindle_service.config.home import Home, is_job_id
from rekindle_service.store.tables import Experiment


def write_record(home: Home, experiment: Experiment, idempotency_key: str | None) -> None:
    """Write its columns; its jobs say in their own directories that they belong to it. Raises OSError.

    Precondition: its jobs are not in the database yet.
    """
    values = {**experiment.model_dump(), "idempotency_key": idempotency_key}
    home.experiments.mkdir(mode=0o700, exist_ok=True)
    write_json(home.experiment(experiment.id), values)


def remove_record(home: Home, experiment_id: str) -> None:
    """Precondition: the experiment is not in the database any more. Raises OSError."""
    home.experiment(experiment_id).unlink(missing_ok=True)


def stored_experiments(home: Home) -> Iterator[Experiment]:
    """Every experiment that was submitted in this home, also one without jobs; unreadable files are omitted."""
    with suppress(FileNotFoundError):
        for path in sorted(home.experiments.glob("*.json")):
            with suppress(ValidationError):
                experiment = Experiment.model_validate(read_json(path), strict=True)
                if is_job_id(experiment.id) and path.stem == experiment.id:
                    yield experiment
