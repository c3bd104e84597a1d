import pytest

from rekindle.contract.outcome import Outcome, OutcomeClass, SavedProgress
from rekindle.contract.processes import boot_id
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.keeper.history import read_history

KILLED = Outcome(OutcomeClass.SIGNAL, "Rank 1 was killed by SIGKILL.", rank=1, signal="SIGKILL")


class Story:
    """Writes a journal as keepers do."""

    def __init__(self, path):
        self.path, self.journal = path, Journal(path)

    def keeper(self, run=1, boot=None):
        identity = {"pid": 1, "start_time": 2, "boot_id": boot or boot_id()}
        self.journal.write(RecordType.KEEPER_STARTED, run=run, keeper=identity)

    def attempt(self, number, *, run=1, **more):
        fields = {"world_size": 2, "devices": ["a", "b"], **more}
        self.journal.write(RecordType.ATTEMPT_STARTED, attempt=number, run=run, **fields)

    def ended(self, number, outcome=KILLED, **fields):
        self.journal.write(RecordType.ATTEMPT_ENDED, attempt=number, outcome=outcome.to_json(), **fields)

    def retry(self, number):
        self.journal.write(RecordType.RETRY_DECIDED, attempt=number, reason="r", delay=0.0, next_try_at=1.0)

    def job_ended(self, state, run=1):
        self.journal.write(RecordType.JOB_ENDED, run=run, state=state, reason="r", outcome=None)

    def read(self, run=1):
        return read_history(self.path, run)


@pytest.fixture
def story(tmp_path):
    return Story(tmp_path / "journal.jsonl")


def test_without_a_journal_nothing_has_happened(story):
    history = story.read()
    assert (history.last.number, history.ended, history.open_attempt, history.job_ended) == (0, [], None, False)


def test_attempts_that_have_ended_count_and_the_next_number_is_free(story):
    story.keeper()
    for number in (1, 2):
        story.attempt(number)
        story.ended(number, progress="known" if number == 1 else "none", running_seconds=7.0, last_step=5, loaded=True)
        story.retry(number)
    history = story.read()
    assert [each.progress for each in history.ended] == [SavedProgress.KNOWN, SavedProgress.NONE]
    for each in history.ended:
        assert (each.outcome, each.running_seconds, each.last_step, each.loaded) == (KILLED, 7.0, 5, True)
    assert (history.last.number, history.open_attempt, history.unjudged) == (2, None, False)


@pytest.mark.parametrize(
    ("boot", "klass"), [(None, OutcomeClass.KEEPER_LOST), ("of-yesterday", OutcomeClass.HOST_LOST)]
)
def test_an_attempt_without_an_end_is_open_and_lost_with_its_machine_under_another_boot_id(story, boot, klass):
    story.keeper(boot=boot)
    story.attempt(1)
    history, attempt = story.read(), story.read().open_attempt
    assert (attempt.number, attempt.world_size, attempt.stop_requested) == (1, 2, None)
    assert history.lost_outcome({}).klass is klass
    story.journal.write(RecordType.STOP_REQUESTED, attempt=1, ending="time_limit")
    assert story.read().open_attempt.stop_requested == "time_limit"


def test_what_the_server_knows_of_the_nodes_of_a_lost_attempt_is_its_outcome(story):
    story.keeper()
    story.attempt(1, hosts=["n1", "n2"])
    lost = story.read().lost_outcome({"n2": "it cannot write /home: Read-only file system", "n9": "no torch"})
    assert lost.klass is OutcomeClass.HOST_LOST
    assert lost.message == "Node n2 was lost: it cannot write /home: Read-only file system."
    assert "the ranks ran on n1, n2" in story.read().lost_outcome({"n9": "no torch"}).message


@pytest.mark.parametrize("job_ends", [True, False])
def test_an_attempt_is_unjudged_until_a_retry_or_the_end_of_the_job_is_written(story, job_ends):
    story.keeper()
    story.attempt(1)
    story.ended(1)
    assert story.read().unjudged
    if job_ends:
        story.job_ended("failed")
    else:
        story.retry(1)
    history = story.read()
    assert (history.unjudged, history.job_ended) == (False, job_ends)


def test_a_new_run_has_its_own_budget_but_continues_to_count_attempts(story):
    story.keeper()
    story.attempt(1)
    story.ended(1)
    story.job_ended("failed")
    history = story.read(run=2)
    assert (history.ended, history.job_ended, history.run_started_at, history.last.number) == ([], False, None, 1)
    story.keeper(run=2)
    story.attempt(2, run=2)
    story.ended(2)
    history = story.read(run=2)
    assert len(history.ended) == 1
    assert history.last.number == 2


def test_a_run_began_with_its_first_attempt(story):
    story.keeper()
    story.attempt(1)
    began = story.read().run_started_at
    story.ended(1)
    story.keeper()
    story.attempt(2)
    assert story.read().run_started_at == began
