"""Our regular expressions find what Python's find, in linear time."""

import random
import re
import time

import pytest

from rekindle_service.run_readers.safe_regex import RegexError, SafeRegex

TEXTS = [
    "", "a", "b", "ab", "ba", "abc", "aaaa", "a.b", "loss=0.53 step=12", "ERROR: boom", "x error y", "_a1 b2",
    "rank 3: timeout", "tab\there", "(paren)", "a-b", "[x]", "ünïcode ✓", "12:34:56", "aXb", "cab", "^$",
]  # fmt: skip
PATTERNS = [
    "a", "a|b", "ab*", "a+b?", "(ab)+", "(a|b)*c", "^a", "b$", "^$", "^ab$", r"\bab\b", r"\Ba", "[abc]+", "[^a]",
    "[a-c]{2}", "a{2,3}", "a{2,}", "a{0,1}b", "x{0}b", "(?:a|ab)(?:c|bc)", r"loss=\d+\.\d+.*step=\d+", r"[\d.]+",
    "[]x]", "[a-]", r"\.", r"\(\w+\)", "a.b", r"\s", r"\S+\t", "✓", "error", "ERROR", "(a*)*b", "(a|aa)+$", "a*?b",
    "()", "a||b", r"\d{2}:\d{2}", "{x", r"[^\s]+ \w", r"\Aa", r"c\Z", "a{,2}c",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_same_lines_match_as_with_re(pattern: str) -> None:
    flags = re.IGNORECASE if pattern == pattern.lower() or "\\" in pattern else 0
    ours, theirs = SafeRegex(pattern), re.compile(pattern.replace("{,2}", "{0,2}"), flags)
    assert [text for text in TEXTS if ours.search(text)] == [text for text in TEXTS if theirs.search(text)]


def test_random_patterns_match_as_with_re() -> None:
    draw = random.Random(16)
    atoms, anchors = ["a", "b", ".", "[ab]", "[^a]", "(a|b)", "(ab)", "(a*b)", "(?:b|)", r"(\b|a)"], [r"\b", "^", "$"]
    repeated = [atom + count for atom in atoms for count in ("", "", "*", "+", "?", "{1,2}")]
    for _ in range(400):
        pattern = "".join(draw.choice([*repeated, *anchors]) for _ in range(4))
        text = "".join(draw.choice("ab ") for _ in range(draw.randrange(9)))
        assert SafeRegex(pattern).search(text) == bool(re.search(pattern, text)), (pattern, text)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a*)*$c", ".*.*.*.*=x", "a{0,100}a{100}b"])
def test_what_takes_forever_with_re_takes_linear_time(pattern: str) -> None:
    began = time.process_time()
    assert not SafeRegex(pattern).search("a" * 4000 + "!")
    assert time.process_time() - began < 20  # with re: longer than the universe has existed


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "has no )"),
        (")", "has no ("),
        ("[a", "has no ]"),
        ("*a", "nothing to repeat"),
        ("a**", "nothing to repeat"),
        ("\\", "last character"),
        (r"(a)\1", "back-references"),
        ("(?=a)", "look-around"),
        ("(?i)a", "flags"),
        ("a{3,2}", "smaller one first"),
        ("a{999}", "up to 200"),
        ("((a{20}){20}){20}", "too large"),
        ("[z-a]", "empty"),
        ("(" * 50 + "a" + ")" * 50, "nested too deeply"),
    ],
)
def test_what_is_not_possible_is_refused_with_a_reason(pattern: str, problem: str) -> None:
    with pytest.raises(RegexError, match=re.escape(problem)):
        SafeRegex(pattern)
