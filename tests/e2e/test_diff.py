"""Two trainings with one change between them: the first step, its phase, and what explains it are named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cli_process import rekindle
from e2e.served_job import ServedJob
from plain_torchrun import SCRIPTS
from rekindle_service.client import Client

SOURCE = (SCRIPTS / "replayed.py").read_text()


def replaced(old: str, new: str) -> Callable[[Path], None]:
    def change(script: Path) -> None:
        assert old in SOURCE
        script.write_text(SOURCE.replace(old, new))

    return change


def package(version: str, directory: Path) -> str:
    """A directory for PYTHONPATH with one package, or rather what is recorded of it."""
    found = directory / version / f"layers-{version}.dist-info"
    found.mkdir(parents=True)
    (found / "METADATA").write_text(f"Metadata-Version: 2.1\nName: layers\nVersion: {version}\n")
    return str(found.parent)


CHANGES = {
    "a line": (replaced("nn.Dropout(0.3)", "nn.Dropout(0.2)"), {}, ("step 1,", "train.py changed", "nn.Dropout(0.2)")),
    "a sample": (
        replaced("    joined = ", "    x[7] += 0.001\n    joined = "),
        {},
        ("content of the batch", "train.py changed"),
    ),
    "a random number": (
        replaced("run.log(loss=loss)", "run.log(loss=loss)\n                    _ = run.step == 6 and torch.rand(1)"),
        {},
        ("step 7,", "random numbers", "train.py changed"),
    ),
    "an argument": (None, {"args": ["ddp", "--lr", "0.02", "--epochs", "1"]}, ("step 1,", "arguments: --lr")),
    "the world size": (None, {"ranks": 1}, ("step 1,", "world size")),
}


@pytest.fixture
def train(client: Client, home: Path, tmp_path: Path) -> Callable[..., ServedJob]:
    def submit(change: Callable[[Path], None] | None = None, **more: object) -> ServedJob:
        code = tmp_path / f"code{len(list(tmp_path.glob('code*')))}"
        code.mkdir()
        (code / "train.py").write_text(SOURCE)
        if change is not None:
            change(code / "train.py")
        body = {"script": "train.py", "args": ["ddp", "--epochs", "1"], "code": {"path": str(code)}, "device": "cpu"}
        return ServedJob(client, home, {**body, "ranks": 2, "env": {"OMP_NUM_THREADS": "1"}, **more})

    return submit


def compare(home: Path, one: ServedJob, other: ServedJob) -> tuple[int, str]:
    for job in (one, other):
        assert job.finish() == "succeeded"
    done = rekindle(home, "diff", one.id, other.id)
    return done.returncode, " ".join(done.stdout.split())


@pytest.mark.long
def test_what_two_trainings_differ_in_is_named(train: Callable[..., ServedJob], home: Path, tmp_path: Path) -> None:
    original, same = train(), train()
    code, said = compare(home, original, same)
    assert (code, "Identical over 20 common steps" in said) == (0, True), said
    for name, (change, more, expected) in CHANGES.items():
        code, said = compare(home, original, train(change, **more))
        assert code == 1, (name, said)
        assert [words for words in expected if words not in said] == [], (name, said)
    paths = [package(version, tmp_path) for version in ("1.0", "2.0")]
    one, other = (
        train(replaced("torch.manual_seed(0)", f"torch.manual_seed({index})"), env={"PYTHONPATH": path})
        for index, path in enumerate(paths)
    )
    code, said = compare(home, one, other)
    assert code == 1
    assert "layers 1.0" in said, said
