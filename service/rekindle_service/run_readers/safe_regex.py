r"""Regular expressions in time linear in the text, whatever the pattern and the text are.

People search logs that others have written, and Python's own expressions can take forever for a line of thirty
characters, holding up the whole server. A pattern becomes a nondeterministic automaton (Thompson), and that, lazily and
with a bounded cache, a deterministic one, as in RE2. Syntax: that of ``re`` without back-references, look-around, flags
and names; ``*?`` is ``*``, since only whether a text has a match is asked. A pattern without capital letters ignores
case.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

_MAX_STATES = 1000  # of the nondeterministic automaton
_MAX_REPEAT = 200
_MAX_CACHED = 4000  # transitions
_CLASSES: dict[str, Callable[[str], bool]] = {
    "d": str.isdecimal,
    "w": lambda character: character.isalnum() or character == "_",
    "s": str.isspace,
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "0": "\0"}
_COUNT = re.compile(r"\{(\d{1,4})?(,)?(\d{1,4})?\}")

Test = Callable[[str], bool]


class RegexError(ValueError):
    """A pattern that is not valid, or not possible in linear time."""


@dataclass(slots=True)
class _State:
    """``test``: of the next character; ``anchor``: of the position; neither: a choice. The last one is the match."""

    out: list[int] = field(default_factory=list)
    test: Test | None = None
    anchor: str | None = None


_Fragment = tuple[int, list[int]]
"""Its first state, and those whose ``out`` is still to be added."""


class _Parser:
    """Recursive descent; builds the automaton while it reads."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0
        self.states: list[_State] = []

    def parse(self) -> int:
        """The first state. Raises RegexError."""
        first, ends = self._alternatives(0)
        if self._at < len(self._pattern):
            raise RegexError("a ) has no (")
        self._connect(ends, self._add(_State()))
        return first

    def _alternatives(self, depth: int) -> _Fragment:
        first, ends = self._sequence(depth)
        while self._take("|"):
            other, other_ends = self._sequence(depth)
            first, ends = self._add(_State([first, other])), ends + other_ends
        return first, ends

    def _sequence(self, depth: int) -> _Fragment:
        first = self._add(_State())
        ends = [first]
        while self._at < len(self._pattern) and self._peek() not in "|)":
            begin = self._at
            head, tails = self._atom(depth)
            head, tails = self._repeated(begin, depth, head, tails)
            self._connect(ends, head)
            ends = tails
        return first, ends

    def _repeated(self, begin: int, depth: int, head: int, tails: list[int]) -> _Fragment:
        end = self._at
        low, high = self._counts()
        if (low, high) == (1, 1):
            return head, tails
        after = self._at
        first = last = self._add(_State())
        loose: list[int] = []
        for number in range(max(low, 1 if high is None else high)):
            if number:
                self._at = begin
                head, tails = self._atom(depth)
            choice = self._add(_State())
            self._connect([last], choice)
            self._connect([choice], head)
            if number >= low:
                loose.append(choice)
            last = self._add(_State())
            self._connect(tails, last)
        if high is None:
            self._connect([last], choice)
        if begin < end:
            self._at = after
        return (first, [*loose, last]) if high != 0 else self._empty()

    def _empty(self) -> _Fragment:
        state = self._add(_State())
        return state, [state]

    def _counts(self) -> tuple[int, int | None]:
        """How often the atom before may occur: at least and at most."""
        counts: tuple[int, int | None] = (1, 1)
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if self._at < len(self._pattern) and self._peek() in simple:
            counts = simple[self._next()]
        elif (found := _COUNT.match(self._pattern, self._at)) and found[0] not in ("{}", "{,}"):
            self._at = found.end()
            low = int(found[1] or 0)
            high = None if found[2] and found[3] is None else int(found[3] or low)
            if max(low, high or 0) > _MAX_REPEAT or (high is not None and high < low):
                raise RegexError(f"{found[0]} must have numbers up to {_MAX_REPEAT}, the smaller one first")
            counts = low, high
        else:
            return counts
        self._take("?")
        if self._at < len(self._pattern) and self._peek() in "*+?":
            raise RegexError(f"nothing to repeat before {self._peek()!r} at character {self._at + 1}")
        return counts

    def _atom(self, depth: int) -> _Fragment:
        character = self._next()
        match character:
            case "(":
                return self._group(depth)
            case "[":
                return self._one(self._set())
            case ".":
                return self._one(lambda _: True)
            case "^" | "$":
                return self._anchor(character)
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise RegexError(f"nothing to repeat before {character!r} at character {self._at}")
            case _:
                return self._one(character.__eq__)

    def _group(self, depth: int) -> _Fragment:
        if depth > 20:
            raise RegexError("groups are nested too deeply")
        if self._take("?") and not self._take(":"):
            raise RegexError("look-around, names and flags (?…) are not possible; use (?:…) for a group")
        fragment = self._alternatives(depth + 1)
        if not self._take(")"):
            raise RegexError("a ( has no )")
        return fragment

    def _escape(self) -> _Fragment:
        character = self._next("a \\ is the last character")
        if character in "bB":
            return self._anchor(character)
        if character in "AZ":
            return self._anchor("^" if character == "A" else "$")
        return self._one(self._escaped(character))

    def _escaped(self, character: str) -> Test:
        if character.lower() in _CLASSES:
            test = _CLASSES[character.lower()]
            return test if character.islower() else lambda each: not test(each)
        if character in _ESCAPES:
            return _ESCAPES[character].__eq__
        if character.isalnum():
            raise RegexError(f"\\{character} is not possible (back-references are not)")
        return character.__eq__

    def _set(self) -> Test:
        negated, tests = self._take("^"), list[Test]()
        first = True
        while first or self._peek("a [ has no ]") != "]":
            first = False
            character = self._next("a [ has no ]")
            if character == "\\":
                low = self._next("a [ has no ]")
                tests.append(self._escaped(low))
                continue
            if self._pattern[self._at : self._at + 1] == "-" and self._pattern[self._at + 1 : self._at + 2] not in (
                "",
                "]",
            ):
                self._next()
                tests.append(_between(character, self._next()))
            else:
                tests.append(character.__eq__)
        self._next()
        return lambda each: any(test(each) for test in tests) is not negated

    def _one(self, test: Test) -> _Fragment:
        state = self._add(_State(test=test))
        return state, [state]

    def _anchor(self, kind: str) -> _Fragment:
        state = self._add(_State(anchor=kind))
        return state, [state]

    def _add(self, state: _State) -> int:
        if len(self.states) >= _MAX_STATES:
            raise RegexError("the expression is too large; repeat less")
        self.states.append(state)
        return len(self.states) - 1

    def _connect(self, ends: list[int], to: int) -> None:
        for end in ends:
            self.states[end].out.append(to)

    def _peek(self, problem: str = "") -> str:
        if self._at >= len(self._pattern):
            raise RegexError(problem)
        return self._pattern[self._at]

    def _next(self, problem: str = "the expression ends too early") -> str:
        character = self._peek(problem)
        self._at += 1
        return character

    def _take(self, character: str) -> bool:
        found = self._pattern[self._at : self._at + 1] == character
        self._at += found
        return found


def _between(low: str, high: str) -> Test:
    if high < low:
        raise RegexError(f"the range {low}-{high} is empty")
    return lambda each: low <= each <= high


_Position = tuple[frozenset[int], str]
"""The states before the next character, and the character before it: none, ``a`` for one of a word, else a space."""


class SafeRegex:
    """Not thread-safe."""

    def __init__(self, pattern: str) -> None:
        """Raises RegexError."""
        parser = _Parser(pattern)
        self._first = parser.parse()
        self._states = parser.states
        self._match = len(self._states) - 1
        self._folded = re.sub(r"\\.", "", pattern) == re.sub(r"\\.", "", pattern).lower()
        self._steps: dict[tuple[_Position, str], _Position | None] = {}

    def search(self, text: str) -> bool:
        """Whether ``text``, which is one line, has a match."""
        position: _Position = (frozenset([self._first]), "")
        for character in text.lower() if self._folded else text:
            after = self._step(position, character)
            if after is None:
                return True
            position = after
        return self._step(position, "") is None

    def _step(self, position: _Position, character: str) -> _Position | None:
        """The position after ``character``, empty at the end of the text; None where a match ends before it."""
        key = position, character
        if key in self._steps:
            return self._steps[key]
        if len(self._steps) >= _MAX_CACHED:
            self._steps.clear()
        closure = self._closure(position, character)
        after = None if self._match in closure else self._after(closure, character)
        self._steps[key] = after
        return after

    def _after(self, closure: set[int], character: str) -> _Position:
        tested = [state for state in map(self._states.__getitem__, closure) if state.test is not None]
        reached = {out for state in tested if character and state.test and state.test(character) for out in state.out}
        return frozenset([self._first, *reached]), "a" if character and _CLASSES["w"](character) else " "

    def _closure(self, position: _Position, following: str) -> set[int]:
        """All states that are reached without reading a character."""
        todo, before = list(position[0]), position[1]
        found = set[int]()
        while todo:
            number = todo.pop()
            state = self._states[number]
            if number in found or (state.anchor is not None and not _holds(state.anchor, before, following)):
                continue
            found.add(number)
            if state.test is None:
                todo += state.out
        return found


def _holds(anchor: str, before: str, following: str) -> bool:
    if anchor == "^":
        return before == ""
    if anchor == "$":
        return following == ""
    at_boundary = (before == "a") is not (following != "" and _CLASSES["w"](following))
    return at_boundary is (anchor == "b")
