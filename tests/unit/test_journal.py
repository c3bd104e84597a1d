import pytest

from rekindle.contract.run_dir.journal import Journal, RecordType, read_journal


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal.jsonl"


def write_three(path):
    writer = Journal(path)
    writer.write(RecordType.KEEPER_STARTED, run=1, keeper={"pid": 1})
    writer.write(RecordType.ATTEMPT_STARTED, attempt=1, note='"}\n{"type": "job_ended", "at": 1}')
    writer.write(RecordType.JOB_ENDED, state="succeeded")


def test_records_are_read_as_they_were_written(journal):
    write_three(journal)
    records = list(read_journal(journal))
    assert [record.type for record in records] == [
        RecordType.KEEPER_STARTED,
        RecordType.ATTEMPT_STARTED,
        RecordType.JOB_ENDED,
    ]
    assert records[0].fields == {"run": 1, "keeper": {"pid": 1}}
    assert records[0].at <= records[1].at <= records[2].at
    assert list(read_journal(journal, records[1].end)) == records[2:]


def test_a_journal_cut_at_any_byte_tells_all_whole_records_and_invents_none(journal):
    write_three(journal)
    data, whole = journal.read_bytes(), list(read_journal(journal))
    for length in range(len(data) + 1):
        journal.write_bytes(data[:length])
        assert list(read_journal(journal)) == [record for record in whole if record.end <= length]


def test_what_is_written_behind_any_cut_is_read(journal):
    write_three(journal)
    data, whole = journal.read_bytes(), list(read_journal(journal))
    for length in range(whole[1].end - 2, len(data) + 1):
        journal.write_bytes(data[:length])
        Journal(journal).write(RecordType.RESUMED, attempt=1, step=5)
        *before, last = read_journal(journal)
        assert (last.type, last.fields) == (RecordType.RESUMED, {"attempt": 1, "step": 5})
        kept = [record.type for record in whole if record.end <= length + 1]  # only the newline may have been missing
        assert [record.type for record in before] in (kept, [record.type for record in whole if record.end <= length])


@pytest.mark.parametrize("line", ['{"type": "of a newer version", "at": 1}', '{"type": "resumed"}', '{"at": 1}', "{}",
                                  '{"type": "resumed", "at": "noon"}', '{"type": [], "at": 1}'])  # fmt: skip
def test_lines_that_are_no_known_record_are_passed_over(journal, line):
    journal.write_text(line + "\n")
    Journal(journal).write(RecordType.RESUMED, attempt=1, step=5)
    assert [record.type for record in read_journal(journal)] == [RecordType.RESUMED]


def test_no_journal_is_an_empty_one(journal):
    assert list(read_journal(journal)) == []
