"""How scripts are parsed to find out who starts their processes; what is found is in test_placement.py."""

from rekindle_service.launch import placement
from rekindle_service.launch.placement import reason_for_one_process
from rekindle_service.loading import PARSING


def test_no_two_threads_parse_at_once_and_a_parser_that_fails_decides_nothing(monkeypatch):
    def fails(_):
        assert PARSING.locked()
        raise SystemError("AST constructor recursion depth mismatch (before=165, after=185)")

    monkeypatch.setattr(placement.ast, "parse", fails)
    assert reason_for_one_process(b"import torch") is None
    assert not PARSING.locked()
