import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle.contract.outcome import SavedProgress
from rekindle.contract.run_dir.attempt_history import AttemptHistory
from rekindle.contract.run_dir.control_messages import Fault
from rekindle.contract.run_dir.journal import Journal, Malformed, RankProcess, RecordType, read_journal

_KEEPER = {"pid": 1, "start_time": 2, "boot_id": "b"}


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal.jsonl"


def write_three(path):
    writer = Journal(path)
    writer.write(RecordType.KEEPER_STARTED, run=1, keeper=_KEEPER)
    writer.write(
        RecordType.ATTEMPT_STARTED, attempt=1, run=1, world_size=1, devices=['"}\n{"type": "job_ended", "at": 1}']
    )
    writer.write(RecordType.JOB_ENDED, run=1, state="succeeded", reason="every rank finished")


def test_records_are_read_as_they_were_written(journal):
    assert list(read_journal(journal)) == []
    write_three(journal)
    records = list(read_journal(journal))
    assert [record.type for record in records] == [
        RecordType.KEEPER_STARTED,
        RecordType.ATTEMPT_STARTED,
        RecordType.JOB_ENDED,
    ]
    assert (records[0].run, records[0].keeper.boot_id) == (1, "b")
    assert records[0].at <= records[1].at <= records[2].at
    assert list(read_journal(journal, records[1].end)) == records[2:]


def test_a_journal_cut_at_any_byte_has_all_complete_records_and_invents_none(journal):
    write_three(journal)
    data, whole = journal.read_bytes(), list(read_journal(journal))
    for length in range(len(data) + 1):
        journal.write_bytes(data[:length])
        assert list(read_journal(journal)) == [record for record in whole if record.end <= length]


def test_what_is_written_after_any_cut_is_read(journal):
    write_three(journal)
    data, whole = journal.read_bytes(), list(read_journal(journal))
    for length in range(whole[1].end - 2, len(data) + 1):
        journal.write_bytes(data[:length])
        Journal(journal).write(RecordType.RESUMED, attempt=1, step=5)
        *before, last = read_journal(journal)
        assert (last.type, last.attempt, last.step) == (RecordType.RESUMED, 1, 5)
        kept = [record.type for record in whole if record.end <= length + 1]  # only the newline may have been missing
        assert [record.type for record in before] in (kept, [record.type for record in whole if record.end <= length])


@pytest.mark.parametrize("line", ['{"type": "of a newer version", "at": 1}', '{"at": 1}', "{}", '{"type": [], "at": 1}',
                                  "not json", "[1]", "[" * 5000])  # fmt: skip
def test_lines_of_no_known_type_are_skipped(journal, line):
    journal.write_text(line + "\n")
    Journal(journal).write(RecordType.RESUMED, attempt=1, step=5)
    assert [record.type for record in read_journal(journal)] == [RecordType.RESUMED]


@pytest.mark.parametrize(
    "fields",
    ["", '"attempt": 1', '"attempt": 1, "step": 5.5', '"attempt": "1", "step": 5', '"attempt": 1, "step": -1',
     '"attempt": 1e999, "step": 5', f'"attempt": {10**30}, "step": 5', '"attempt": true, "step": 5'],
)  # fmt: skip
def test_a_line_without_the_fields_of_its_type_is_visibly_malformed(journal, fields):
    journal.write_text('{"type": "resumed", "at": 1' + (", " if fields else "") + fields + "}\n")
    (record,) = read_journal(journal)
    assert isinstance(record, Malformed)
    assert (record.kind, record.end) == (RecordType.RESUMED, len(journal.read_bytes()))
    assert record.problem


def test_a_line_longer_than_any_record_is_skipped_without_being_held(journal):
    with journal.open("wb") as file:
        file.truncate(1 << 26)
        file.seek(1 << 26)
        file.write(b'\n{"type": "resumed", "at": 1, "attempt": 1, "step": 5}\n')
    assert [record.step for record in read_journal(journal)] == [5]


def test_text_that_no_database_takes_is_replaced(journal):
    journal.write_text('{"type": "retry_decided", "at": 1, "attempt": 1, "reason": "\\ud800", "next_try_at": 2}\n')
    (record,) = read_journal(journal)
    assert record.reason == "?"


def test_stored_records_are_read_by_the_names_that_they_were_written_with(journal):
    stored = [
        {"type": "rolled_back", "at": 1, "run": 2, "step": 40, "quarantined": [50, 60]},
        {"type": "ranks_running", "at": 2, "attempt": 3,
         "ranks": [{"rank": 0, "pid": 7, "start_time": 8}]},
        {"type": "attempt_ended", "at": 3, "attempt": 3, "outcome": {"class": "oom", "message": "full"},
         "resumed_from_step": 40, "last_step": 48, "snapshot_step": 45, "saving_seconds": 0.5, "progress": "known"},
        {"type": "fault_injected", "at": 4, "attempt": 3, "fault": "corrupt-snapshot", "rank": None, "snapshot": 45},
    ]  # fmt: skip
    journal.write_text("".join(json.dumps(line) + "\n" for line in stored))
    back, running, ended, fault = read_journal(journal)
    assert (back.type, back.step, back.quarantined) == (RecordType.ROLLED_BACK, 40, [50, 60])
    assert running.ranks == [RankProcess(0, 7, 8)]
    assert (ended.outcome.klass, ended.snapshot_step, ended.progress) == ("oom", 45, SavedProgress.KNOWN)
    assert (fault.fault, fault.snapshot) == (Fault.CORRUPT_SNAPSHOT, 45)


_FIELDS = ("attempt", "run", "rank", "step", "share", "outcome", "ranks", "keeper", "state", "reason", "devices", "at",
           "next_try_at", "world_size", "fault", "snapshot", "last_step", "quarantined", "saving_seconds")  # fmt: skip
_VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, -1, 1 << 70, 1.5, float("inf"), float("nan"), "", "\ud800", "kill", "failed"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["class", "pid", "rank"]), inner),
    max_leaves=4,
)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(list(RecordType)), st.dictionaries(st.sampled_from(_FIELDS), _VALUES))))
def test_no_line_breaks_the_fold(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("run") / "journal.jsonl"
    path.write_text("".join(json.dumps({"type": kind, "at": 1, **fields}) + "\n" for kind, fields in lines))
    history = AttemptHistory.read(path)
    assert history.restarts >= 0
    json.dumps([attempt.world_size for attempt in history.attempts.values()])
