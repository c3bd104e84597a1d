import os
import signal

import pytest

from rekindle.contract.files import write_json
from rekindle.contract.job import DRAINED_EXIT_CODE, RunIntent
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import JobIntent
from rekindle.training.drain import Drained, DrainWatch


@pytest.fixture
def run_dir(tmp_path):
    return RunDir(tmp_path)


@pytest.fixture
def listening(run_dir):
    watch = DrainWatch(run_dir, reads_intent=True)
    watch.start()
    yield watch
    watch.stop()


def want(run_dir, wish):
    write_json(run_dir.intent, RunIntent(wish, 1, ["cpu:0"]).to_json())


def test_nobody_asks_at_first(listening, run_dir):
    assert not listening.requested()
    want(run_dir, JobIntent.RUN)
    assert not listening.requested()


@pytest.mark.parametrize("wish", [JobIntent.DRAIN, JobIntent.CANCEL])
def test_the_wish_of_the_server_is_heard(listening, run_dir, wish):
    want(run_dir, JobIntent.RUN)
    assert not listening.requested()
    want(run_dir, wish)
    assert listening.requested()


def test_only_the_rank_that_is_to_read_the_intent_reads_it(run_dir):
    want(run_dir, JobIntent.DRAIN)
    assert not DrainWatch(run_dir, reads_intent=False).requested()


def test_an_intent_torn_to_pieces_is_no_wish(listening, run_dir):
    run_dir.intent.write_bytes(b'{"want": "dra')
    assert not listening.requested()


def test_sigterm_only_sets_a_flag(listening):
    os.kill(os.getpid(), signal.SIGTERM)
    assert listening.requested()


def test_the_signal_goes_back_to_its_former_handler():
    heard = []
    former = signal.signal(signal.SIGTERM, lambda *_: heard.append("script"))
    try:
        watch = DrainWatch(None, reads_intent=True)
        watch.start()
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == ["script"]
        assert watch.requested()
        watch.stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == ["script", "script"]
    finally:
        signal.signal(signal.SIGTERM, former)


def test_drained_ends_the_process_with_the_code_that_the_keeper_knows():
    assert Drained(7).code == DRAINED_EXIT_CODE
    assert str(Drained(7)) == "drained after step 7"
