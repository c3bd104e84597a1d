"""What the server answers about experiments."""

from typing import Any, TypedDict

from rekindle_service.client.job_answers import Outcome


class Trial(TypedDict):
    """One job of an experiment; ``values`` are in the order of the experiment's measures."""

    job: str
    number: int
    name: str
    state: str
    intent: str
    parameters: dict[str, Any]
    repeat: int
    seconds: float | None
    outcome: Outcome | None
    values: list[float | None]


class Row(TypedDict):
    """One combination of parameters; ``spread`` is the lowest and highest of its repeats."""

    parameters: dict[str, Any]
    trials: list[int]
    values: list[float | None]
    spread: list[tuple[float, float] | None]


class ExperimentSummary(TypedDict):
    id: str
    number: int
    name: str
    title: str
    command: str | None
    created_at: str
    over: bool
    jobs: int
    states: dict[str, int]


class Experiment(ExperimentSummary):
    """With its table; ``machine`` is where it was measured."""

    definition: dict[str, Any]
    machine: dict[str, Any]
    notes: list[str]
    parameters: list[str]
    measures: list[str]
    rows: list[Row]
    trials: list[Trial]


class BuiltIn(TypedDict):
    """An experiment that comes with rekindle."""

    name: str
    size: str
    title: str
    jobs: int
    definition: dict[str, Any]
