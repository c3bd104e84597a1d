"""Bytes that change under a snapshot by chance: each change is noticed, and the snapshot before is used.

``--soak N`` makes N changes; N is their seed too.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rekindle import Snapshots

CHANGES = 200
FILES = ["model.pt", "rank-0.pt", "manifest.json"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the snapshots 10 and 20."""
    directory = tmp_path_factory.mktemp("damaged")
    snapshots = Snapshots(directory)
    for step in (10, 20):
        model = {"weight": torch.full((2_000,), float(step)), "bias": torch.arange(step)}
        snapshots.save(step, 1, {"model": model, "progress": {"epoch": 1}}, {"rng": torch.arange(step), "text": "x"})
    return directory


def changed(kind: str, data: bytes, chance: random.Random) -> bytes:
    """``data`` with one thing wrong with it."""
    place = chance.randrange(len(data))
    match kind:
        case "bit":
            return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
        case "byte":
            return data[:place] + bytes([(data[place] + chance.randint(1, 255)) % 256]) + data[place + 1 :]
        case "truncated":
            return data[:place]
        case "zeroes":
            end = min(place + chance.choice([16, 512, 4096]), len(data))
            return data[:place] + bytes(end - place) + data[end:]
        case "swapped":
            other = chance.randrange(len(data))
            first, last = sorted([place, other])
            middle = data[first + 1 : last]
            return data[:first] + data[last : last + 1] + middle + data[first : first + 1] + data[last + 1 :]
    raise ValueError(kind)


def changes(count: int) -> Iterator[tuple[str, str, int]]:
    chance = random.Random(count)
    for _ in range(count):
        yield (
            chance.choice(FILES),
            chance.choice(["bit", "byte", "truncated", "zeroes", "swapped"]),
            chance.getrandbits(32),
        )


@pytest.mark.timeout(0)
def test_every_change_of_any_byte_is_noticed_and_the_snapshot_before_is_used(
    directory: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    latest, quarantine = directory / f"{20:012d}", directory / f"quarantine-{20:012d}"
    unnoticed, noticed = [], Counter[str]()
    for name, kind, seed in changes(request.config.getoption("--soak") or CHANGES):
        good = (latest / name).read_bytes()
        chance = random.Random(seed)
        while (bad := changed(kind, good, chance)) == good:
            pass
        (latest / name).write_bytes(bad)
        caplog.clear()
        restored = Snapshots(directory).restore()
        assert restored is not None
        if (restored.step, [each.step for each in restored.skipped]) != (10, [20]):
            unnoticed.append((name, kind, seed))
            (latest / name).write_bytes(good)
            continue
        noticed[f"{name} {kind}"] += 1
        assert torch.equal(restored.shared_state["model"]["weight"], torch.full((2_000,), 10.0))
        assert f"snapshot 20 skipped: {restored.skipped[0].reason}" in caplog.text
        (quarantine / name).write_bytes(good)
        quarantine.rename(latest)
    print(f"{noticed.total()} changes noticed, {len(unnoticed)} not: {dict(noticed)}")
    assert unnoticed == []
    last = Snapshots(directory).restore()
    assert last is not None
    assert last.step == 20
