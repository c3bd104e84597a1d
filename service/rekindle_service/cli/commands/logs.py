"""`rekindle logs`: the output of the ranks."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import typer
from typer import Option

from rekindle_service.cli import formatting
from rekindle_service.cli.context import JobArgument, connect
from rekindle_service.cli.exit_codes import ExitCode
from rekindle_service.cli.output import note, note_connection, out
from rekindle_service.client import AttemptHeader, Client, Job, LogFilter, LogItem, LogLine, is_settled, models

_RANK_COLOURS = ("36", "33", "32", "35", "34", "96", "93", "92", "95", "94")  # SGR foregrounds
_BAR_INTERVAL = 5.0  # seconds between two drawings of one progress bar, when following
_CURSOR_UP = b"\x1b[A"
_MAX_TAIL = 2000  # lines by time: a page of the server
_DIM, _RESET = "\x1b[2m", "\x1b[0m"
_BY_TIME_HELP = "One attempt, by default the latest, in the order in which the lines came, each with its time."
_POLL_INTERVAL = 0.5  # seconds, following by time
_TAIL_HELP = "Start with the last N lines of the latest attempt. (default: all lines)"

LogOutput = Literal["text", "json"]
Stream = Literal["stdout", "stderr", "both"]


def logs(
    context: typer.Context,
    job: JobArgument,
    follow: Annotated[bool, Option("-f", "--follow", help="Follow the logs until the job has ended.")] = False,
    rank: Annotated[int | None, Option(min=0, help="Only this rank. (default: all)")] = None,
    attempt: Annotated[int | None, Option(min=1, help="Only this attempt. (default: all)")] = None,
    stream: Annotated[Stream, Option(help="Only this output stream of the ranks.")] = "both",
    tail: Annotated[int | None, Option("-n", "--tail", min=1, help=_TAIL_HELP)] = None,
    output: Annotated[
        LogOutput, Option("-o", "--output", help="text for people; json for programs, one object per line.")
    ] = "text",
    raw: Annotated[bool, Option("--raw", help="Keep control characters, which act on this terminal.")] = False,
    by_time: Annotated[bool, Option("--by-time", help=_BY_TIME_HELP)] = False,
) -> None:
    """Show the output of the ranks.

    Neither Ctrl-C nor a restart of the server affects the job. Only the latest state of a progress bar is shown, with
    -f one every 5 seconds; --raw and -o json show all.
    """
    choice = LogFilter(rank, None if stream == "both" else stream, attempt, tail)
    if by_time and raw:
        raise typer.BadParameter("--by-time prints text, not the bytes that were written: pass it without --raw")
    printer = TextPrinter(raw=raw, prefixed=rank is None, coloured=out().is_terminal and not out().no_color)
    with connect(context) as client:
        job_id = client.find_job(job)["id"]
        try:
            if by_time:
                print_by_time(client.reconnecting(note_connection), job_id, choice, printer, output, follow=follow)
            else:
                items = client.logs(job_id, choice, follow=follow, on_connection_change=note_connection)
                _print_items(items, printer, output, follow=follow)
        except KeyboardInterrupt:
            note(f"The job keeps running. Follow it again with: rekindle logs -f {job_id}")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        if follow:
            last = client.job(job_id)
            note(f"── {last['state']} {formatting.status_line(last)}".rstrip() + " ──")


def _print_items(items: Iterable[LogItem], printer: "TextPrinter", output: LogOutput, *, follow: bool) -> None:
    if output == "json":
        print_json_lines(items)
    else:
        for item in items if printer.raw else collapse_redraws(items, follow=follow):
            printer.write(item)


def print_logs(
    client: Client, job_id: str, choice: LogFilter | None = None, on_job: Callable[[Job], None] | None = None
) -> None:
    """Print for people what the ranks write until the job is settled; ``on_job`` gets the job meanwhile."""
    choice = choice or LogFilter()
    printer = TextPrinter(raw=False, prefixed=choice.rank is None, coloured=out().is_terminal and not out().no_color)
    items = client.logs(job_id, choice, follow=True, on_connection_change=note_connection, on_job=on_job)
    for item in collapse_redraws(items, follow=True):
        printer.write(item)


def print_by_time(
    client: Client, job_id: str, choice: LogFilter, printer: "TextPrinter", output: LogOutput, *, follow: bool
) -> None:
    """Lines after the time at which each came; ``follow``: of all attempts from the latest on, unless one is chosen."""
    if not follow or choice.attempt is not None:
        _print_timed(lines_by_time(client, job_id, choice, follow=follow), printer, output)
        return
    shown = 0
    while not is_settled(job := client.job(job_id)) or job["attempt"] > shown:
        if job["attempt"] == shown:
            time.sleep(_POLL_INTERVAL)
            continue
        first, shown = not shown, shown + 1 if shown else job["attempt"]
        if output == "text":
            printer.write(AttemptHeader(shown, None))
        part = replace(choice, attempt=shown, tail=choice.tail if first else None)
        _print_timed(lines_by_time(client, job_id, part, follow=True), printer, output)


def _print_timed(lines: Iterable[models.TimedLine], printer: "TextPrinter", output: LogOutput) -> None:
    for line in lines:
        if output == "json":
            _print(json.dumps(line))
        else:
            at = "" if line["at"] is None else time.strftime("%H:%M:%S", time.localtime(line["at"]))
            printer.write(LogLine(line["rank"], line["stream"], line["text"].encode()), f"{at:8} ")


def lines_by_time(
    client: Client, job_id: str, choice: LogFilter, *, follow: bool = False
) -> Iterator[models.TimedLine]:
    """The chosen lines of one attempt, page by page, so that memory is bounded; ``follow``: until the attempt ends."""
    chosen: Any = {"rank": choice.rank, "stream": choice.stream}
    if choice.tail is None:
        page = client.log_lines(job_id, choice.attempt, **chosen)
    else:
        page = client.log_lines(job_id, choice.attempt, **chosen, before="end", limit=min(choice.tail, _MAX_TAIL))
    yield from page["items"]
    over = choice.tail is not None and not follow
    while not over and not (page["complete"] and (page["ended"] or not follow)):
        if page["complete"]:
            time.sleep(_POLL_INTERVAL)
        page = client.log_lines(job_id, page["attempt"], **chosen, after=page["next"])
        yield from page["items"]
    yield from page["unfinished"]


def print_json_lines(items: Iterable[LogItem]) -> None:
    """In ASCII, so that no text in it can control a terminal."""
    attempt = 0
    for item in items:
        if isinstance(item, AttemptHeader):
            attempt = item.attempt
        else:
            text = item.raw.rstrip(b"\r\n").decode(errors="replace")
            _print(json.dumps({"attempt": attempt, "rank": item.rank, "stream": item.stream, "text": text}))


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPrinter:
    """Log lines for people."""

    raw: bool
    prefixed: bool
    coloured: bool

    def write(self, item: LogItem, before: str = "") -> None:
        """Print at once, text after ``before``; raw output contains only what the job wrote."""
        if isinstance(item, AttemptHeader):
            if item.attempt > 1:
                (note if self.raw else _print)(header(item))
        elif self.raw:
            sys.stdout.buffer.write(self._prefix(item).encode() + item.raw)
            sys.stdout.buffer.flush()
        else:
            for line in item.text.split("\n"):
                dimmed = self.coloured and item.stream == "stderr"
                _print(before + self._prefix(item) + (f"{_DIM}{line}{_RESET}" if dimmed else line))

    def _prefix(self, item: LogLine) -> str:
        if not self.prefixed:
            return ""
        colour = _RANK_COLOURS[item.rank % len(_RANK_COLOURS)]
        return f"\x1b[{colour}m[rank {item.rank}]{_RESET} " if self.coloured else f"[rank {item.rank}] "


def header(item: AttemptHeader) -> str:
    """``── attempt 2, resumed from step 120 ──``."""
    resumed = f", resumed from step {item.resumed_from_step}" if item.resumed_from_step else ""
    return f"── attempt {item.attempt}{resumed} ──"


def collapse_redraws(
    items: Iterable[LogItem], *, follow: bool, clock: Callable[[], float] = time.monotonic
) -> Iterator[LogItem]:
    """The same items without lines that are drawn over, as on a terminal; ``follow``: one drawing every few seconds.

    Progress bars draw one line many times; the last drawing is kept until the same rank and stream writes more.
    """
    pending: dict[tuple[int, str], LogLine] = {}
    shown_at: dict[tuple[int, str], float] = {}
    for item in items:
        if isinstance(item, AttemptHeader):
            yield from pending.values()
            pending.clear()
            yield item
            continue
        source = (item.rank, item.stream)
        pending.pop(source, None)
        if not _is_redrawn(item.raw):
            yield item
        elif not item.text.strip():
            continue  # a bar that is about to be drawn, or was erased
        elif follow and clock() - shown_at.get(source, float("-inf")) >= _BAR_INTERVAL:
            shown_at[source] = clock()
            yield item
        else:
            pending[source] = item
    yield from pending.values()


def _is_redrawn(raw: bytes) -> bool:
    """Whether the cursor returns to the start of the line, or to the line above, as for nested bars."""
    return raw.endswith(b"\r") or raw.rstrip(b"\r\n").endswith(_CURSOR_UP)
