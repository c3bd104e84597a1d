"""Read the metrics in a line that a training script has printed, with their step and epoch. Pure.

Anything may be printed, and a wrong curve is worse than none. A number counts where the words before it name a metric
(``Loss 6.9e+00``, ``acc: 88%``, ``'eval_loss': 0.4``), or where ``=`` or ``:`` follows another name in a line that
names a step or an epoch, and the number has a decimal point. Times, sizes, speeds, addresses, versions and numbers in
sentences never count. The rows of tables are read as lines, too.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from rekindle.keeper.observers.printed_names import MAX_NAME, METRIC_KINDS, Kind, classify, is_known, split_of

MAX_LINE = 2000  # characters; what is longer is not printed for people
_MAX_COUNT = 1 << 53
_MAX_DEPTH = 3  # of JSON
_MAX_COLUMNS = 40

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x08")
_NUMBER = re.compile(
    r"(?<![\w@.\-+/])(?P<value>[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w*\((?!-?[\d.]))"
    r"|[-+]?(?:[nN]a[nN]|[iI]nf(?:inity)?)\b)"
    r"(?:\s*/\s*(?P<total>\d+)(?![\w./-]))?(?P<glued>[^\s,;|()\[\]{}'\"]*)"
)
_SEPARATOR = re.compile(
    r"\s*['\"]?\s*(?P<separator>:|=>|->|=)?\s*(?:(?:torch\.)?tensor\(|np\.\w+\()?(?P<opened>[\[(]*)['\"#$]?\s*$"
)
_SEGMENT = re.compile(r"[,;|{}\[\]()<>\t]|\s{2,}|:\s|\s[-*/]\s|:(?=[A-Za-z])")
_IN_PARENTHESES = re.compile(r"\s*\((\w+|%)\)\s*$|\s*\((train|val|valid|test|eval)\)", re.IGNORECASE)
_UNIT = re.compile(
    r"\s?(?:[num]?s|secs?|seconds?|mins?|minutes|h|hrs?|hours?|days?|[kKMGT]i?[bB](?:/s)?|bytes|[MG]Hz|W|C|\S+/s(?:ec)?)"
    r"(?![\w/])"
)
_PERCENT = re.compile(r"\s*\(\s*([\d.]+)\s*%\s*\)")
_OF = re.compile(r"\s*of\s+(\d+)")
_AFTER_POSITION = re.compile(r"\s*(?:\[|[━=>]|batches|steps|iters)")
_BAR_OF_EPOCHS = re.compile(r"epochs?\W*$", re.IGNORECASE)
_LIST_START = re.compile(r"\[(\d+),\s*(\d+)\](?=:?\s)")  # "[epoch, batch]"
_ROUND = re.compile(r"\[(\d+)\](?=:?\s)")
_NAME_AFTER = re.compile(r"\s+([A-Za-z]+(?: [A-Za-z]+)?)\s*(?=[,;|]|$)")  # "2.30 loss,"
_BORDER = re.compile(r"[-=+|─━┃│╇ ]{8,}$")
_PAIR_ROW = re.compile(r"[|│]\s+(\S.*?)\s*[|│]\s*(\S*)\s*[|│]$")
_HEADER_CELL = re.compile(r"[A-Za-z#][\w/ .()@%-]*")
_CELL_GAP = re.compile(r"\s{2,}|\t")
_BAR_DIGITS = re.compile(r"(?<=%\|)[^|\d]*\d[^|]*(?=\|)")  # "13%|#3        |"
_NUMBERED = re.compile(r":?\s+[-+]?\d*\.\d|,\s*'[-+]?\d*\.\d")  # "loss 3 0.25", "loss 3: 0.25", "[(0, '0.25')]"
_LISTED = re.compile(r"\s*,\s*['\"(]?[-+.\d]")
_BAR_AFTER = re.compile(r"\)?:\s*\d+%\|.*")
_SHORT = {"E": "epoch", "#": "step"}  # headings of spaCy
_TOTAL_ROWS = frozenset({"all", "mean", "average", "avg", "total", "overall"})

_NO_TRAINING = re.compile(
    r"\b(down|up)?load|token|\bmap\b|filter|generat|process|prepar|extract|\bsav|writ|\beval|\bval\b|valid|\btest"
    r"|predict|sanity|calibrat|fetch|compil|warm.?up|cach|index|\bread|convert|namespace|patience|stop|best",
    re.IGNORECASE,
)
"""What makes a number no step of the training when it comes before it in the line."""

_DATES = re.compile(
    r"\b(mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|days?|eta|s|ms|it|step|am|pm)\b"
)
_VARYING = re.compile(r"(?:\d+ days?, )?\d+")
_DECORATION = re.compile(r"^[^\x00-\x7f\w]+\s*")
_NO_LETTERS = re.compile(r"[^a-z]+")


class _Gap(NamedTuple):
    """What the text before a number says about it."""

    key: str
    kind: Kind
    strong: bool  # a separator marks the number as the value of the key
    split: str | None  # the part of the data that is named from here on, as a prefix of metrics
    opened: bool  # a bracket is open before the number


class _Token(NamedTuple):
    gap: _Gap
    start: int
    end: int
    text: str
    value: float | None  # None where it is not finite
    total: int | None
    clean: bool  # no unit follows

    @property
    def counted(self) -> int | None:
        """The number as a step or an epoch."""
        value = self.value
        return int(value) if self.clean and value is not None and 0 <= value < _MAX_COUNT else None


@dataclass(slots=True)
class PrintedLine:
    """The numbers in a line that mean something for a training."""

    values: dict[str, float | None] = field(default_factory=dict)  # metrics by name; None for what is not finite
    step: int | None = None  # counted over all epochs, where the line shows how long one is
    steps: int | None = None  # their number in the whole training, as the line says
    epoch: int | None = None
    epochs: int | None = None
    position: int | None = None  # within the epoch, in steps or samples
    size: int | None = None  # of an epoch in the unit of ``position``; None where the line does not say
    part: float | None = None  # of the epoch that is done
    totals: dict[str, bool] = field(default_factory=dict)  # of "step" and "epoch", whether they are one below the total
    whole_epoch: bool = True  # the epoch is printed as a whole number
    is_bar: bool = False
    head: str = ""  # the words before the first metric: the same for all lines of a form
    form: str = ""  # the same for all lines that count the same thing


class LineReader:
    """Reads the lines of one log in their order. It remembers the header of a table, and a heading above lines."""

    def __init__(self) -> None:
        self._headers: list[list[str]] = []  # latest first
        self._rows: dict[str, str] = {}  # of a table of pairs
        self._section = ""
        self._heading: str | None = None

    def read(self, text: str) -> PrintedLine | None:
        """Read a line without its end; None where nothing in it counts."""
        text = _BAR_DIGITS.sub("", _ANSI.sub("", text[: 4 * MAX_LINE])).rstrip()
        if not text or len(text) > MAX_LINE:
            return None
        if text[0] in "|│" and (pair := _PAIR_ROW.match(text)) is not None and text.count(text[0]) == 3:
            self._add_pair(pair[1], pair[2])
            return None
        if _BORDER.match(text):
            return self._end_of_pairs()
        if (row := self._table_row(text)) is not None:
            return row
        if not text[0].isspace():
            self._heading = None
        if text[-1] == ":" and not any(map(str.isdigit, text)):
            self._heading = split_of(text)
            return None
        return _assemble(list(_tokens(text)), text, self._heading)

    def skip(self) -> None:
        """Forget what belongs to lines that were not read, such as a table of which some rows are missing."""
        self._rows, self._section, self._heading = {}, "", None

    def _add_pair(self, name: str, value: str) -> None:
        if name.endswith("/") and not value:
            self._section = name
        elif value and len(self._rows) < _MAX_COLUMNS:
            self._rows[self._section + name] = value

    def _end_of_pairs(self) -> PrintedLine | None:
        rows, self._rows, self._section = self._rows, {}, ""
        return _assemble(_tokens_of_items(rows.items()), "", None) if rows else None

    def _table_row(self, text: str) -> PrintedLine | None:
        """Read a row below a header; a header is remembered."""
        for header in self._headers:
            cells = _cells(text, header)
            if cells is None:
                continue
            items = [(name, cell) for name, cell in zip(header, cells, strict=False) if not cell[:1].isalpha()]
            return _assemble(_tokens_of_items(items), "", None)
        bare = _BAR_AFTER.sub("", text)
        separator = "|" if "|" in bare else "," if "," in bare else None
        if ("=" in bare or ":" in bare) or (separator is None and "  " not in bare and "\t" not in bare):
            return None
        names = [name.strip() for name in (bare.split(separator) if separator else _CELL_GAP.split(bare.strip()))]
        names = [name for name in names if name or separator == ","]
        names = names[1:] if names[0] == "#" and len(names) > 1 and names[1].lower() == "step" else names
        if 3 <= len(names) <= _MAX_COLUMNS and all(_HEADER_CELL.fullmatch(name) for name in names):
            names = [_SHORT.get(name, name) for name in names]
            kinds = [classify(name, spaced=False)[1] for name in names]
            if Kind.STEP in kinds or Kind.EPOCH in kinds or names[0].lower() == "class":
                self._headers = [names, *(each for each in self._headers if each != names)][:2]
        return None


def _cells(text: str, header: Sequence[str]) -> list[str] | None:
    """The cells of a row of a table with ``header``; None for any other line."""
    if "|" in text and "%|" not in text:
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
    elif "," in text and "  " not in text:
        cells = [cell.strip() for cell in text.split(",")]
    elif any(" " in name for name in header):
        cells = _CELL_GAP.split(text.strip())
    else:
        cells = text.split()
        if len(cells) > len(header) and "%|" in text:
            cells = cells[: len(header)]
    if len(cells) != len(header):
        return None
    labelled = header[0].lower() == "class"
    if not (cells[0].lower() in _TOTAL_ROWS if labelled else cells[0][:1].isdigit()):
        return None
    return cells if sum(cell[:1].isdigit() or cell[:1] == "-" for cell in cells) * 2 > len(cells) else None


def _tokens(text: str) -> Iterator[_Token]:
    """The numbers of a line with what is before each."""
    if text[0] == "{" and text[-1] == "}":
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            yield from _tokens_of_items(_flat(value))
            return
    end, numbered = 0, None
    for match in _NUMBER.finditer(text):
        gap = _gap(text[end : match.start()][-160:]) if numbered is None else numbered
        total, glued = match["total"], match["glued"]
        end = match.end()
        clean = not glued.strip(".:%*>") and not text.startswith("|", end)
        numbered = None
        if not gap.key and not glued and (after := _NAME_AFTER.match(text, end)) is not None:
            gap = _named_after(after[1])
        elif clean and gap.kind in METRIC_KINDS:
            after_value = end - len(glued)
            if match["value"].isdigit() and total is None and _NUMBERED.match(text, after_value):
                numbered = gap
            clean = numbered is None and not (gap.opened and _LISTED.match(text, end))
            clean = clean and (bool(glued) or _UNIT.match(text, end) is None)
        number = _number(match["value"])
        yield _Token(gap, match.start(), end, match["value"] + glued[:1], number, int(total) if total else None, clean)


def _flat(value: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """The numbers of a JSON object, by path."""
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        if isinstance(item, dict) and depth < _MAX_DEPTH:
            yield from _flat(item, f"{prefix}{key}/", depth + 1)
        elif isinstance(item, int | float | str) and not isinstance(item, bool):
            yield f"{prefix}{key}", str(item)


def _tokens_of_items(items: Any) -> list[_Token]:
    """Tokens of pairs of a name and a text."""
    tokens = []
    for name, text in items:
        match = _NUMBER.fullmatch(text[:100])
        key, kind = classify(name, spaced=False)
        if match is not None and kind is not Kind.NONE:
            total = int(match["total"]) if match["total"] else None
            clean = not match["glued"].strip(".:%*>")
            gap = _Gap(key, kind, strong=True, split=None, opened=False)
            tokens.append(_Token(gap, 0, 0, match["value"], _number(match["value"]), total, clean))
    return tokens


def _number(text: str) -> float | None:
    value = float(text.replace(",", ""))
    return value if math.isfinite(value) else None


@lru_cache(maxsize=1024)
def _named_after(name: str) -> _Gap:
    """The gap of a number whose name comes after it."""
    key, kind = classify(name, spaced=True)
    known = kind in (Kind.METRIC, Kind.HYPER) and all(map(is_known, name.lower().split()))
    return _Gap(key if known else "", kind if known else Kind.NONE, strong=True, split=None, opened=False)


@lru_cache(maxsize=4096)
def _gap(text: str) -> _Gap:
    """Read the text between two numbers."""
    match = _SEPARATOR.search(text)
    body = _IN_PARENTHESES.sub(r" \1\2", text[: match.start()] if match else text)
    separator, opened = (match["separator"], bool(match["opened"])) if match else (None, False)
    segments = _SEGMENT.split(body.rstrip())
    phrase = _DECORATION.sub("", segments[-1].strip(" \t'\"`*>#-.="))
    is_cell = "|" in body and len(segments) > 1
    named = body[: len(body) - len(phrase)] if "_" in phrase and body.endswith(phrase) else body
    key, kind = classify(phrase, spaced=True)
    strong = separator is not None or is_cell
    if kind in METRIC_KINDS and not strong:
        known = all(is_known(word) for word in phrase.lower().split())
        kind = kind if known and kind is not Kind.OTHER and not opened else Kind.NONE
    return _Gap(key, kind, strong, split_of(named), opened)


def _assemble(tokens: Sequence[_Token], text: str, heading: str | None) -> PrintedLine | None:
    """Make a line of its numbers; None where none counts."""
    if not tokens:
        return None
    line = PrintedLine()
    _add_progress(line, tokens, text)
    _add_metrics(line, tokens, text, heading)
    return line if line.values or line.step is not None or line.epoch is not None else None


def _add_metrics(line: PrintedLine, tokens: Sequence[_Token], text: str, heading: str | None) -> None:
    if any(_is_index(token) for token in tokens):
        return
    sure = any(token.clean and token.gap.kind is Kind.METRIC for token in tokens)
    counted = line.step is not None or line.epoch is not None or line.position is not None
    split, first = heading, None
    for token in tokens:
        gap = token.gap
        split = gap.split if gap.split is not None else split
        if not token.clean or not _counts(token, counted=counted, sure=sure):
            continue
        value = token.value
        if token.total is not None:
            if (percent := _PERCENT.match(text, token.end)) is None:
                continue
            value = float(percent[1])
        named = not split or split_of(re.sub(r"[^a-z]+", " ", gap.key)) is not None
        name = gap.key if named else f"{split}_{gap.key}"
        if name not in line.values:
            line.values[name] = value
            first = token.start if first is None else first
    if first is not None:
        line.head = _head(text[:first], next(iter(line.values)))


def _is_index(token: _Token) -> bool:
    return token.gap.kind is Kind.INDEX and token.total is None and "." not in token.text and token.clean


def _counts(token: _Token, *, counted: bool, sure: bool) -> bool:
    """Whether the number is a metric in a line with a step or epoch (``counted``), or with a ``sure`` metric."""
    match token.gap.kind:
        case Kind.METRIC:
            return True
        case Kind.HYPER:
            return counted or sure
        case Kind.OTHER:
            has_point = token.value is None or bool(re.search(r"[.eE%]", token.text))
            return token.gap.strong and has_point and (counted or sure)
        case _:
            return False


def _head(prefix: str, metric: str) -> str:
    """The words of ``prefix`` without the name of the metric after it and what differs between two lines of a form."""
    words = _DATES.sub(" ", _NO_LETTERS.sub(" ", prefix.partition("%|")[0].lower())).split()
    named = set(_NO_LETTERS.sub(" ", metric).split())
    while words and words[-1] in named:
        words.pop()
    return " ".join(words)[:MAX_NAME]


def _add_progress(line: PrintedLine, tokens: Sequence[_Token], text: str) -> None:
    """Add step and epoch, unless the line is about something else than training."""
    step = next((each for each in tokens if each.gap.kind is Kind.STEP and each.counted is not None), None)
    epoch = next((each for each in tokens if each.gap.kind is Kind.EPOCH and each.counted is not None), None)
    part, is_bar = _position(tokens, text)
    if text and (start := _LIST_START.match(text)) and step is None and epoch is None:
        line.epoch, line.position, line.form = int(start[1]), int(start[2]), "list"
        return
    if text and (start := _ROUND.match(text)) and step is None and epoch is None and part is None:
        line.step, line.form = int(start[1]), "round"
        return
    found = [token for token in (step, epoch, part) if token is not None]
    if not found:
        return
    starts = [_key_start(text, token) for token in found]
    if is_bar and part is not None:
        starts.append(len(text[: text.rindex("%|", 0, part.start)].rstrip("0123456789")))
    prefix = text[: min(starts)]
    if _NO_TRAINING.search(prefix):
        return
    _fill(line, step, epoch, part, text, is_bar)
    kinds = "".join(kind for kind, found in (("b", is_bar), ("s", step), ("e", epoch)) if found)
    line.form = f"{kinds} {_VARYING.sub('#', ' '.join(prefix.split())[:80])}"


def _key_start(text: str, token: _Token) -> int:
    """Where the word before a number begins."""
    before = text[: token.start].rstrip(" [(:=#'\"")
    match = re.search(r"[\w-]+$", before)
    return token.start if match is None else match.start()


def _fill(
    line: PrintedLine, step: _Token | None, epoch: _Token | None, part: _Token | None, text: str, is_bar: bool
) -> None:
    if epoch is not None:
        line.epoch, line.epochs = epoch.counted, _total(epoch, text)
        line.whole_epoch = "." not in epoch.text.rstrip(".")
        _note_total(line, "epoch", line.epoch, line.epochs)
    if is_bar and part is not None and epoch is None:
        before = text[: part.start].partition("%|")[0].rstrip("0123456789 :")
        if _BAR_OF_EPOCHS.search(before):
            line.epoch, line.epochs, line.is_bar = part.counted, part.total, True
            line.totals["epoch"] = False
            return
    if step is not None:
        line.step, line.steps = step.counted, _total(step, text)
        _note_total(line, "step", line.step, line.steps)
        if line.steps is not None and line.epoch is not None:
            part = step
    if part is None or part.counted is None:
        return
    line.is_bar, line.position, line.size = is_bar, part.counted, part.total
    if part.total:
        line.part = min(part.counted / part.total, 1.0)
    counts_samples = _PERCENT.match(text, part.end) is not None
    if (is_bar or line.epoch is not None) and not counts_samples:
        _note_total(line, "step", part.counted, part.total)
        line.step, line.steps = part.counted, None if line.epoch is not None else part.total
        if line.epoch is not None and part.total is not None and part is not step:
            line.step = part.counted + line.epoch * part.total


def _note_total(line: PrintedLine, name: str, number: int | None, total: int | None) -> None:
    if number is not None and total is not None:
        line.totals[name] = number + 1 == total


def _total(token: _Token, text: str) -> int | None:
    if token.total is not None:
        return token.total
    found = _OF.match(text, token.end)
    return None if found is None else int(found[1])


def _position(tokens: Sequence[_Token], text: str) -> tuple[_Token | None, bool]:
    """The number that shows how far the epoch or the training is, and whether a progress bar does."""
    for before, token in zip((None, *tokens), tokens, strict=False):
        if token.total is None or token.gap.key or not token.clean or not text:
            continue
        after_bar = before is not None and text[before.end - 1 : before.end + 1] == "%|"
        if after_bar and text[token.end :].lstrip()[:1] == "[":
            return token, True
        between = text[before.end if before else 0 : token.start].strip()
        if between[-1:] == "[" or (between[-1:] in ("", "|") and _AFTER_POSITION.match(text, token.end)):
            return token, False
    return None, False
