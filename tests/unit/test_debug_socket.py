"""Answers of a rank's debug server, and nonsense of a script that replaced it."""

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fakes.debug_server import Answer, dump, served
from rekindle.contract.files import write_json
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.rank_traces import Collectives, collective_history, collectives
from rekindle.contract.run_dir.paths import RankDir
from rekindle.contract.run_dir.rank_records import RankState, RankStatus
from rekindle.keeper.rank_processes.probe import probe
from rekindle.rank import handlers


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RankDir]:
    directory = RankDir(tmp_path)
    with served(directory):
        yield directory


def test_the_collectives_of_all_groups_count_and_it_is_known_whether_one_is_in_flight(
    directory: RankDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    retired, running = {"retired": True}, {"retired": False}
    for enqueued, recorder, expected in (
        ((7, -1), {}, Collectives(7, 7, in_flight=False)),
        ((7, -1), {"entries": [retired, retired]}, Collectives(7, 7, in_flight=False)),
        ((7, -1), {"entries": [retired, running]}, Collectives(7, 7, in_flight=True)),
        ((500, 3), {}, Collectives(last_enqueued=500, total_enqueued=503, in_flight=False)),
    ):
        groups = {str(group): {"last_enqueued_collective": last} for group, last in enumerate(enqueued)}
        monkeypatch.setattr(Answer, "body", json.dumps({"pg_status": groups, **recorder}).encode())
        assert collectives(directory) == expected


IDLE = dump((1, "gloo:all_reduce", True), last=1)


@pytest.mark.parametrize(
    ("recorder", "backend"),
    [("backend=nccl2", "nccl2"), ("backend=nccl-lazy", "nccl-lazy"), ("dump_nccl_trace_json", "nccl")],
)
def test_on_a_gpu_the_recorder_of_each_backend_is_asked_and_none_hides_another(
    directory: RankDir, monkeypatch: pytest.MonkeyPatch, recorder: str, backend: str
) -> None:
    monkeypatch.setattr(Answer, "body", dump())
    hung = dump((2, f"{backend}:all_reduce", True), (3, f"{backend}:broadcast", False), last=2)
    monkeypatch.setattr(
        Answer, "by_request", {recorder: hung, "fr_trace_json?onlyactive": IDLE, "fr_trace_json?": IDLE}
    )
    assert collectives(directory) == Collectives(1, 1, in_flight=False)
    assert collectives(directory, on_gpu=True) == Collectives(2, 3, in_flight=True, knows_gpu=True)
    known = [(each.group, each.number, each.operation) for each in collective_history(directory, on_gpu=True)]
    group = f"0 ({backend})"
    assert known == [("0", 1, "all_reduce"), (group, 1, "all_reduce"), (group, 2, "broadcast")]


def test_a_torch_with_one_recorder_for_all_but_nccl_answers_each_question_with_it(
    directory: RankDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answer, "body", IDLE)
    monkeypatch.setattr(Answer, "by_request", {"dump_nccl_trace_json": dump()})
    assert collectives(directory, on_gpu=True) == Collectives(1, 1, in_flight=False, knows_gpu=True)
    assert len(collective_history(directory, on_gpu=True)) == 1


def test_a_rank_that_has_made_no_group_answers(directory: RankDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answer, "body", dump())
    assert collectives(directory, on_gpu=True) == Collectives(None, 0, in_flight=False, knows_gpu=True)


def test_nonsense_is_no_answer(directory: RankDir, monkeypatch: pytest.MonkeyPatch) -> None:
    for nonsense in (
        b"",
        b"[" * 100_000,
        b"[]",
        b'{"pg_status": []}',
        b'{"pg_status": {"0": 1}}',
        b'{"pg_status": {"0": {"last_enqueued_collective": 1e999}}}',
        b'{"pg_status": {"0": {"last_enqueued_collective": 1}}, "entries": 3}',
        b'{"pg_status": {"0": {"last_enqueued_collective": 1}}, "entries": [3]}',
    ):
        monkeypatch.setattr(Answer, "body", nonsense)
        assert collectives(directory) is None, nonsense[:80]


def test_without_a_listener_nothing_is_known(tmp_path: Path) -> None:
    assert collectives(RankDir(tmp_path)) is None


@pytest.mark.parametrize(
    ("variables", "off"),
    [
        ({}, False),
        ({"TORCH_FR_BUFFER_SIZE": "0"}, True),
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, True),
        ({"TORCH_FR_BUFFER_SIZE": "500", "TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, False),
    ],
)
@pytest.mark.parametrize("device", ["cuda:0", "cpu"])
def test_a_rank_on_a_gpu_is_blind_where_no_recorder_of_nccl_answers_or_all_are_off(
    directory: RankDir, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], off: bool, device: str
) -> None:
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    own = ProcessIdentity.own()
    status = RankStatus(0, 0, 2, "host", own.pid, own.start_time, device, RankState.RUNNING)
    write_json(directory.status, status.to_json(), durable=False)
    monkeypatch.setattr(Answer, "body", dump())
    monkeypatch.setattr(Answer, "by_request", {"fr_trace_json?onlyactive": IDLE})
    assert probe(0, own.pid, directory).is_blind is (off and device != "cpu")
    assert not probe(0, own.pid, directory, alone=True).is_blind
    monkeypatch.setattr(Answer, "by_request", {"nccl": b"another format", "fr_trace_json?onlyactive": IDLE})
    assert probe(0, own.pid, directory).is_blind is (device != "cpu")


def test_a_recorder_that_does_not_answer_keeps_no_rank_from_reporting_its_failure(
    directory: RankDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    recorder = SimpleNamespace(_dump_fr_trace_json=lambda *_: answers.wait(60) and "{}")
    monkeypatch.setitem(sys.modules, handlers._C10D, recorder)
    monkeypatch.setattr(handlers, "_DUMP_SECONDS", 0.05)
    handlers.save_collectives(directory)
    assert not answers.is_set()
    answers.set()
