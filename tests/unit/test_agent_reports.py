"""What torchrun's agent reports of ranks that have ended, and when it lets torchrun stop the others."""

import os
import signal
from types import SimpleNamespace

import pytest

from rekindle.keeper import agent


@pytest.fixture
def happened(monkeypatch):
    """Reports and pauses of an agent whose children are ``ended``, by pid: their status and how they ended."""
    events, ended = [], {}
    monkeypatch.setattr(agent, "_looked_for", set())
    monkeypatch.setattr(agent, "Path", lambda _: SimpleNamespace(read_text=lambda: " ".join(map(str, ended))))
    monkeypatch.setattr(agent, "report_exit", lambda pid, code: events.append((pid, code)))
    monkeypatch.setattr(agent.time, "sleep", lambda _: events.append("looks"))
    monkeypatch.setattr(agent.os, "waitid", lambda _, pid, __: ended[pid])
    return SimpleNamespace(events=events, ended=ended)


def by(number):
    return SimpleNamespace(si_code=os.CLD_KILLED, si_status=number)


def test_all_deaths_are_reported_before_the_keeper_looks_and_it_looks_once_for_each_aborted_rank(happened):
    happened.ended |= {11: by(signal.SIGABRT), 12: by(signal.SIGKILL), 13: None}
    agent._report_dead_ranks()
    assert happened.events == [(11, -signal.SIGABRT), (12, -signal.SIGKILL), "looks"]
    happened.events.clear()
    happened.ended[13] = SimpleNamespace(si_code=os.CLD_EXITED, si_status=1)
    agent._report_dead_ranks()
    assert happened.events == [(11, -signal.SIGABRT), (12, -signal.SIGKILL), (13, 1)]


def test_a_rank_that_is_killed_is_not_looked_for(happened):
    happened.ended[12] = by(signal.SIGKILL)
    agent._report_dead_ranks()
    assert happened.events == [(12, -signal.SIGKILL)]
