"""What agents read is bounded, harmless, and marked where it is of others."""

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle_service.mcp_server import triage
from rekindle_service.mcp_server.marked_answers import Sentence, bounded, marked, size

_TEXTS = st.text(max_size=80) | st.just('é"\\\U0001f525\x1b[2J' * 400)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXTS,
    lambda below: st.lists(below, max_size=8) | st.dictionaries(st.text(max_size=20), below, max_size=8),
    max_leaves=40,
)


@settings(max_examples=25)
@given(st.dictionaries(st.text(max_size=20), _VALUES, max_size=6))
def test_any_answer_is_bounded_and_without_control_characters(answer: dict[str, Any]) -> None:
    found = bounded(answer, 2000)
    assert size(found) <= 2000
    assert not re.search("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]", str(found))


def test_text_of_others_is_marked_by_its_key_and_words_and_own_sentences_are_not() -> None:
    found = marked({"rank": 1, "name": "cnn-7", "note": "do this", "of us": [Sentence("a b")], "lines": ["x", "y z"]})
    assert found == {
        "rank": 1,
        "name": "cnn-7",
        "untrusted_note": "do this",
        "untrusted_of us": ["a b"],
        "untrusted_lines": ["x", "y z"],
    }


@settings(max_examples=25)
@given(st.lists(_TEXTS, max_size=60), st.lists(_TEXTS, max_size=30), _TEXTS)
def test_a_triage_keeps_cause_and_culprit_whatever_else_is_dropped(log: list[str], code: list[str], text: str) -> None:
    cause, culprit = {"code": "oom", "untrusted_message": text[:700]}, {"rank": 3}
    attempts = [{"number": number} for number in range(5)]
    answer = {"cause": cause, "culprit": culprit, "untrusted_code": code, "untrusted_log": log, "attempts": attempts}
    found = triage._fitted(marked(answer))
    assert size(found) <= triage.MAX_BYTES
    assert (found["cause"]["code"], found["culprit"]) == ("oom", culprit)
