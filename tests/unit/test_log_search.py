import re
import time
from dataclasses import replace

import pytest

from rekindle_service.run_readers import log_search
from rekindle_service.run_readers.log_search import Match, RegexError, SearchLimits, SearchPage, line_matcher, search

ALL = SearchLimits(matches=1000, bytes=1 << 40, seconds=60)


def offsets(found: SearchPage) -> list[int]:
    return [match.offset for match in found.items]


@pytest.mark.parametrize("block", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize("backwards", [False, True])
def test_every_match_is_found_once_wherever_blocks_are_cut(log, monkeypatch, block, backwards) -> None:
    monkeypatch.setattr(log_search, "_BLOCK", block)
    file = log(b"abab xx aba\nab")
    expected = [0, 2, 8, 12]
    found = search(file, b"ab", 14 if backwards else 0, backwards=backwards, limits=ALL)
    assert offsets(found) == (expected[::-1] if backwards else expected)
    assert found.next is None


@pytest.mark.parametrize(
    ("data", "query", "expected"),
    [
        (b"aaaa", b"aa", [0, 1, 2]),
        (b"Error error ERROR", b"error", [0, 6, 12]),
        (b"Error error ERROR", b"Error", [0]),
    ],
    ids=["overlapping matches", "small letters find capitals", "capitals find only themselves"],
)
def test_overlapping_matches_count_each_and_only_capitals_respect_case(log, data, query, expected) -> None:
    assert offsets(search(log(data), query, 0, backwards=False, limits=ALL)) == expected
    assert offsets(search(log(data), query, len(data), backwards=True, limits=ALL)) == expected[::-1]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_search_continues_where_the_one_before_stopped(log, backwards) -> None:
    file = log(b"x" * 50)
    position, found = (50 if backwards else 0), []
    for _ in range(20):
        part = search(file, b"x", position, backwards=backwards, limits=replace(ALL, matches=7))
        found += offsets(part)
        if part.next is None:
            break
        position = part.next
    assert found == (list(range(50))[::-1] if backwards else list(range(50)))


def test_a_call_stops_at_its_bytes_and_at_its_time(log, monkeypatch) -> None:
    monkeypatch.setattr(log_search, "_BLOCK", 10)
    file = log(b"." * 95 + b"here!")
    assert search(file, b"here", 0, backwards=False, limits=SearchLimits(bytes=30)).next == 30
    assert search(file, b"here", 0, backwards=False, limits=SearchLimits(seconds=0)).next == 10
    assert search(file, b"here", 100, backwards=True, limits=SearchLimits(bytes=10)).next == 90


def test_a_match_has_its_line_or_its_neighbourhood_free_of_control_characters(log) -> None:
    def found(data: bytes) -> Match:
        return search(log(data), b"needle", 0, backwards=False, limits=ALL).items[0]

    match = found(b"first\n\x1b[31mred\x1b[0m needle \xff\x00 end\nlast\n")
    assert (match.line_offset, match.text) == (6, "red needle \N{REPLACEMENT CHARACTER} end")
    match = found(b"y" * 10_000 + b"needle" + b"z" * 10_000)
    assert (match.line_offset, len(match.text)) == (9_800, 500)


def test_nothing_after_the_end_is_searched(log) -> None:
    found = search(log(b"abc"), b"a", 1000, backwards=False, limits=ALL)
    assert (found.items, found.next, found.size) == ([], None, 3)


def matching(pattern: str, *lines: str) -> list[str]:
    return list(filter(line_matcher(pattern), lines))


def test_an_expression_without_a_capital_letter_ignores_case() -> None:
    lines = ("ERROR: loss=0.53", "error", "Größe: 3")
    assert matching(r"error\b", *lines) == ["ERROR: loss=0.53", "error"]
    assert matching("ERROR", *lines) == ["ERROR: loss=0.53"]
    assert matching(r"^\S+ loss=\d+\.\d+$", *lines) == ["ERROR: loss=0.53"]
    assert matching("GRÖSSE|größe", *lines) == []
    assert matching("größe", *lines) == ["Größe: 3"]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", ".*.*.*.*=x", "[ab]*a[ab]{800}c", "(.*a){20}$"])
def test_what_takes_forever_with_python_takes_linear_time(pattern: str) -> None:
    began = time.process_time()
    assert matching(pattern, "a" * 4000 + "!") == []
    assert time.process_time() - began < 20  # with Python's own: longer than the universe has existed


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(a", "missing ): (a"),
        ("*a", "write \\ before it"),
        (r"(a)\1", "no back-references"),
        ("(?<=a)b", "no look-ahead and no look-behind"),
        (r"a\Z", r"write \z or $"),
        ("a{3,2}", "the smaller number first"),
        (r"[\p{L}]{1000}", "too large"),
    ],
)
def test_what_is_not_possible_is_refused_with_a_reason(pattern: str, problem: str) -> None:
    with pytest.raises(RegexError, match=re.escape(problem)):
        line_matcher(pattern)
