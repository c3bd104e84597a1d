"""Blocks and words of the pages: a test reads each block, or a list has the reason why none does."""

import hashlib
import hmac
import inspect
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import rekindle
from doc_pages import ROOT, Block, blocks
from rekindle.contract.outcome import Outcome
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle_service.client import Client
from rekindle_service.config.notification_targets import EventType, NotificationTarget
from rekindle_service.config.settings import Settings
from rekindle_service.notifications.payload import build_payload
from rekindle_service.store.tables import Event, Job

HANDLED = {
    "bash": "docs/test_commands.py runs every line",
    "sh": "docs/test_commands.py runs every line",
    "python": "see PROGRAMS",
    "toml": "docs/experiments.md: docs/test_experiments_page.py; others are settings: here",
    "json": "here",
    "yaml": "configuration of Prometheus, which is not installed for the tests",
    "text": "diagrams and listings; deploy/README.md needs root and systemd, CONTRIBUTING.md starts the tests",
}

PROGRAMS = {
    "README.md": "docs/test_readme.py",
    "docs/client.md": "docs/test_commands.py, against a server",
    "docs/devices.md": "needs a GPU",
    "docs/experiments.md": "here; docs/test_commands.py submits it",
    "docs/notifications.md": "here",
    "docs/own-scripts.md": "parts of docs/examples: docs/test_beginners_pages.py",
    "docs/quickstart.md": "docs/test_beginners_pages.py; docs/test_commands.py submits them",
    "docs/replay.md": "e2e/test_replay_hooks.py",
    "docs/snapshots.md": "here",
    "docs/training.md": "here",
    "docs/troubleshooting.md": "docs/test_commands.py submits it",
}


def test_every_block_is_of_a_handled_kind() -> None:
    assert [str(block) for block in blocks() if block.language not in HANDLED] == []
    programs = blocks("python")
    for block in programs:
        compile(block.text, str(block), "exec")
    unexplained = [str(block) for block in programs if block.page not in PROGRAMS]
    assert unexplained == [], "say in this file how they are run"


def test_the_shown_receivers_are_settings(tmp_path: Path) -> None:
    (block,) = blocks("toml", "docs/notifications.md")
    (tmp_path / "rekindle.toml").write_text(block.text)
    hook, command = Settings(home=tmp_path).notify
    assert (hook.url, command.time_limit) == ("https://hooks.example/rekindle", 30)


SETTINGS = [block for block in blocks("toml") if block.page != "docs/experiments.md"]


@pytest.mark.parametrize("block", SETTINGS, ids=str)
def test_shown_settings_are_accepted(block: Block, tmp_path: Path) -> None:
    (tmp_path / "rekindle.toml").write_text(block.text)
    assert Settings(home=tmp_path) != Settings(home=tmp_path / "defaults")


def test_a_page_names_everything_that_it_describes() -> None:
    methods = {name for name in vars(Client) if not name.startswith("_")} - {"from_home", "close", "send"}
    run = {name for name in vars(rekindle.Run) if not name.startswith("_")}
    arguments = inspect.signature(rekindle.Run).parameters.keys() - {"extra"}
    described = [
        ("notifications", {*EventType, *NotificationTarget.model_fields}, "`"),
        ("client", methods, "`"),
        ("training", run | arguments, "[`(]"),
    ]
    for page, names, end in described:
        text = (ROOT / "docs" / f"{page}.md").read_text()
        assert {name for name in names if not re.search(f"`{name}{end}", text)} == set(), page


@pytest.mark.parametrize("block", blocks("python", "docs/training.md"), ids=str)
def test_a_shown_training_loop_runs_unchanged(block: Block, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REKINDLE_SNAPSHOT_DIR", str(tmp_path))
    exec(block.text, {})  # noqa: S102 it is our own page
    assert list(tmp_path.glob("*/manifest.json")) or "import rekindle\n" in block.text


def test_the_shown_payload_has_the_fields_of_a_real_one() -> None:
    (block,) = blocks("json", "docs/notifications.md")
    shown = json.loads(block.text)
    event = Event(id=142, job_id="k3v9x2m1qa", at=1000.0, kind="state", from_state="running", to_state="recovering")
    outcome = Outcome.from_json(shown["outcome"])
    attempt = AttemptInfo(1, run=1, started_at=1.0, ended_at=9.0, outcome=outcome)
    sent = json.loads(build_payload(event, EventType.ATTEMPT_FAILED, Job(id="k3v9x2m1qa"), [attempt]).body)
    assert sent.keys() == shown.keys()
    assert (sent["job"].keys(), sent["outcome"]) == (shown["job"].keys(), shown["outcome"])
    assert sent["id"] == shown["id"]


def test_the_shown_check_of_a_signature_accepts_only_the_right_one() -> None:
    (block,) = blocks("python", "docs/notifications.md")
    names: dict[str, Any] = {}
    exec(block.text, names)  # noqa: S102 it is our own page
    at, secret, body = str(int(time.time())), b"at least sixteen characters", b"{}"
    proof = hmac.new(secret, f"{at}.{{}}".encode(), hashlib.sha256).hexdigest()
    headers = {"Rekindle-Timestamp": at, "Rekindle-Signature": f"sha256={proof}"}
    check = names["is_from_rekindle"]
    assert check(headers, body, secret)
    assert not check(headers, b"{ }", secret)
    assert not check(headers, body, b"another secret of somebody")
    assert not check({**headers, "Rekindle-Timestamp": str(int(at) - 1000)}, body, secret)


def test_the_shown_training_in_virtual_shards_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (block,) = blocks("python", "docs/snapshots.md")
    monkeypatch.setenv("REKINDLE_SNAPSHOT_DIR", str(tmp_path))
    torch.manual_seed(0)
    inputs = torch.randn(512, 8)
    model = torch.nn.Linear(8, 1)
    names = {
        "torch": torch,
        "Run": rekindle.Run,
        "DeterministicElastic": rekindle.DeterministicElastic,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "data": TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)),
    }
    exec(block.text, names)  # noqa: S102 it is our own page
    assert list(tmp_path.glob("*/manifest.json"))


def test_pages_for_users_have_no_tests_measurements_or_internals() -> None:
    evidence = r"\btests/|\bpytest\b|\b(?:fence|tombstone|generation)s?\b"
    found = {
        f"{path.name}: {match[0]}"
        for path in (ROOT / "docs").glob("*.md")
        if path.name not in ("architecture.md", "evidence.md")
        for match in re.finditer(evidence, path.read_text())
    }
    assert found <= {"eight-gpus.md: pytest"}, "they belong to evidence.md or architecture.md"


def test_the_written_pages_can_be_read_in_two_hours() -> None:
    texts = [path.read_text() for path in (ROOT / "docs").glob("*.md")]
    written = [re.sub(r"<!-- (\w+) -->\n.*?<!-- /\1 -->", "", text, flags=re.DOTALL) for text in texts]
    assert sum(bool(re.search(r"\w", word)) for text in written for word in text.split()) <= 30_000


def test_the_shown_script_of_a_sweep_runs_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = blocks("python", "docs/experiments.md")
    monkeypatch.setattr(sys, "argv", ["rates.py"])
    exec(compile(block.text, str(block), "exec"), {})  # noqa: S102 it is our own page
