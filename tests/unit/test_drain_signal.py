import errno
import os
import signal

import pytest

from rekindle.contract.files import write_json
from rekindle.contract.job import DRAINED_EXIT_CODE, RunIntent
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import JobIntent
from rekindle.training import drain
from rekindle.training.drain import Drained, DrainSignal


@pytest.fixture
def run_dir(tmp_path):
    return RunDir(tmp_path)


@pytest.fixture
def listening(run_dir):
    drain = DrainSignal(run_dir, reads_intent=True)
    drain.start()
    yield drain
    drain.stop()


def request(run_dir, intent):
    write_json(run_dir.intent, RunIntent(intent, 1, ["cpu:0"]).to_json())


@pytest.mark.parametrize("intent", [JobIntent.DRAIN, JobIntent.CANCEL])
def test_the_intent_of_the_server_is_noticed_and_a_torn_one_is_no_request(listening, run_dir, intent):
    assert not listening.requested()
    request(run_dir, JobIntent.RUN)
    assert not listening.requested()
    run_dir.intent.write_bytes(b'{"want": "dra')
    assert not listening.requested()
    request(run_dir, intent)
    assert listening.requested()


def test_an_intent_that_cannot_be_read_now_is_read_at_the_next_step(listening, run_dir, monkeypatch):
    request(run_dir, JobIntent.DRAIN)
    with monkeypatch.context() as patched:
        patched.setattr(drain, "read_json", fail)
        assert not listening.requested()
    assert listening.requested()


def fail(_path):
    raise OSError(errno.ESTALE, "Stale file handle")


def test_only_the_rank_that_is_to_read_the_intent_reads_it(run_dir):
    request(run_dir, JobIntent.DRAIN)
    assert not DrainSignal(run_dir, reads_intent=False).requested()


def test_sigterm_only_sets_a_flag(listening):
    os.kill(os.getpid(), signal.SIGTERM)
    assert listening.requested()


def test_a_drained_rank_survives_the_sigterm_that_follows_the_end_of_another(run_dir):
    before = signal.getsignal(signal.SIGTERM)
    drain = DrainSignal(run_dir, reads_intent=True)
    drain.start()
    try:
        drain.stop(drained=True)
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        drain.stop()
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_previous_signal_handler_is_restored():
    received = []
    former = signal.signal(signal.SIGTERM, lambda *_: received.append("script"))
    try:
        drain = DrainSignal(None, reads_intent=True)
        drain.start()
        os.kill(os.getpid(), signal.SIGTERM)
        assert received == ["script"]
        assert drain.requested()
        drain.stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert received == ["script", "script"]
    finally:
        signal.signal(signal.SIGTERM, former)


def test_drained_ends_the_process_with_the_code_that_the_keeper_knows():
    assert Drained(7).code == DRAINED_EXIT_CODE
    assert str(Drained(7)) == "drained after step 7"
