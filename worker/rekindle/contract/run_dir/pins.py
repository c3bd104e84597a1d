"""Which snapshots a person wants kept for good. Written by the server, read by whoever deletes old snapshots."""

from collections.abc import Collection
from pathlib import Path

from rekindle.contract.files import read_json, write_json


def read_pins(path: Path) -> frozenset[int]:
    """The steps of the pinned snapshots."""
    value = read_json(path)
    steps = value.get("steps") if isinstance(value, dict) else None
    return frozenset(step for step in steps if isinstance(step, int)) if isinstance(steps, list) else frozenset()


def write_pins(path: Path, steps: Collection[int]) -> None:
    """In force for every deletion that begins after the return."""
    write_json(path, {"steps": sorted(steps)})
