"""`rekindle logs` and `wait`: what the ranks of a job print, and how far it is, until it has ended."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from typer import Option

from rekindle.contract.run_dir.paths import STREAMS
from rekindle_service.cli import formatting
from rekindle_service.cli.context import JobArgument, connect
from rekindle_service.cli.terminal import (
    ExitCode,
    Output,
    OutputOption,
    exit_code_for,
    note,
    note_connection,
    out,
    print_job,
    print_line,
)
from rekindle_service.client import (
    AttemptHeader,
    Client,
    Job,
    LogFilter,
    LogItem,
    LogLine,
    LogLines,
    ProblemError,
    TimedLine,
    is_settled,
)
from rekindle_service.sanitize import sanitize_line

# --- output

_RANK_COLOURS = ("36", "33", "32", "35", "34", "96", "93", "92", "95", "94")  # SGR foregrounds
_BAR_INTERVAL = 5.0  # seconds between two drawings of one progress bar, when following
_CURSOR_UP = b"\x1b[A"
_PAGE_LINES = 2000  # by time: the server's maximum
_DIM, _RESET = "\x1b[2m", "\x1b[0m"
_BY_TIME_HELP = "One attempt, by default the latest, in the order in which the lines came, each with its time."
_GREP_HELP = "Only lines with TEXT, of all attempts; ignores case if TEXT has no capitals. (default: all lines)"
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
    grep: Annotated[str | None, Option(metavar="TEXT", help=_GREP_HELP)] = None,
    regex: Annotated[bool, Option("--regex", help="Take the text of --grep as a regular expression of RE2.")] = False,
) -> None:
    """Show the output of the ranks.

    Neither Ctrl-C nor a restart of the server affects the job. Only the latest state of a progress bar is shown, with
    -f one every 5 seconds; --raw and -o json show all.
    """
    choice = LogFilter(rank, None if stream == "both" else stream, attempt, tail)
    if raw and (by_time or grep is not None):
        option = "--by-time" if by_time else "--grep"
        raise typer.BadParameter(f"{option} prints text, not the bytes that were written: pass it without --raw")
    if regex and grep is None:
        raise typer.BadParameter("--regex says how to take the text of --grep: pass --grep as well")
    printer = TextPrinter(raw=raw, prefixed=rank is None)
    with connect(context) as client:
        job_id = client.find_job(job)["id"]
        try:
            if by_time or grep is not None:
                timed = client.reconnecting(note_connection)
                TimedLogs(timed, job_id, choice, printer, output, by_time, follow, grep, regex).print()
            else:
                items = client.logs(job_id, choice, follow=follow, on_connection_change=note_connection)
                _print_items(note_empty(items, choice), printer, output, follow=follow)
        except KeyboardInterrupt:
            note(f"The job keeps running. Follow it again with: rekindle logs -f {job_id}")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        if follow:
            last = client.job(job_id)
            note(f"── {last['state']} {formatting.status_line(last)}".rstrip() + " ──")


def _print_items(items: Iterable[LogItem], printer: "TextPrinter", output: LogOutput, *, follow: bool) -> None:
    if output == "json":
        print_json_lines(items)
        return
    for item in items if printer.raw else collapse_redraws(items, follow=follow):
        printer.write(item)


def print_logs(
    client: Client, job_id: str, choice: LogFilter | None = None, on_job: Callable[[Job], None] | None = None
) -> None:
    """Print for people what the ranks write until the job is settled; ``on_job`` gets the job meanwhile."""
    choice = choice or LogFilter()
    items = client.logs(job_id, choice, follow=True, on_connection_change=note_connection, on_job=on_job)
    _print_items(items, TextPrinter(raw=False, prefixed=choice.rank is None), "text", follow=True)


@dataclass(frozen=True, slots=True)
class TimedLogs:
    """Lines in the order in which they came, of one attempt after the other.

    ``times``: print when each line came. ``grep``: only lines with this text.
    """

    client: Client
    job_id: str
    choice: LogFilter
    printer: "TextPrinter"
    output: LogOutput
    times: bool
    follow: bool
    grep: str | None
    regex: bool

    def print(self) -> None:
        """Print the lines, and how many of each attempt have the text."""
        found: dict[int, int] = {}
        unknown_rank: ProblemError | None = None
        for attempt in self._attempts():
            try:
                found[attempt] = self._print_attempt(attempt, None if found else self.choice.tail)
            except ProblemError as error:  # ranks of an elastic job differ by attempt
                if error.problem.get("type") != "/problems/unknown-rank" or (self.follow and not found):
                    raise
                unknown_rank = error
        if unknown_rank is not None and not found:
            raise unknown_rank
        if self.grep is not None and found:
            counts = [f"{count} in attempt {attempt}" for attempt, count in sorted(found.items(), reverse=True)]
            note(f"Lines found: {', '.join(counts)}.")

    def _print_attempt(self, attempt: int, tail: int | None) -> int:
        """Print the lines of one attempt, the first after a header where there may be several; return their number."""
        count = 0
        for count, line in enumerate(self._lines(attempt, tail), 1):
            if self.output == "json":
                _print(json.dumps({"attempt": attempt, **line}))
                continue
            if count == 1 and self.choice.attempt is None and (self.follow or self._from_first):
                self.printer.write_header(AttemptHeader(attempt, None), first=self.grep is not None)
            at = "" if line["at"] is None else time.strftime("%H:%M:%S", time.localtime(line["at"]))
            item = LogLine(line["rank"], line["stream"], line["text"].encode())
            self.printer.write(item, f"{at:8} " if self.times else "")
        if not count and self.grep is None:
            note(nothing_written(self.choice, attempt))
        return count

    @property
    def _from_first(self) -> bool:
        return self.grep is not None and self.choice.tail is None

    def _attempts(self) -> Iterator[int]:
        """The chosen attempt; by default the latest, with ``grep`` all of them, when following also those that come."""
        if self.choice.attempt is not None:
            yield self.choice.attempt
            return
        numbers = [each["number"] for each in self.client.attempts(self.job_id)]
        if self.follow:
            yield from self._followed_attempts()
        elif numbers:
            yield from numbers if self._from_first else numbers[-1:]
        else:
            self.client.log_lines(self.job_id)  # the server's error says why there is none

    def _followed_attempts(self) -> Iterator[int]:
        shown = 0
        while not is_settled(job := self.client.job(self.job_id)) or job["attempt"] > shown:
            if job["attempt"] == shown:
                time.sleep(_POLL_INTERVAL)
                continue
            shown = shown + 1 if shown or self._from_first else job["attempt"]
            yield shown

    def _lines(self, attempt: int, tail: int | None) -> Iterator[TimedLine]:
        """The lines of one attempt, page by page, so that memory is bounded; when following until it ends."""
        page = self._page(attempt, after=None if tail is None else self._tail_cursor(attempt, tail))
        yield from page["items"]
        while not (page["complete"] and (page["ended"] or not self.follow)):
            if page["complete"]:
                time.sleep(_POLL_INTERVAL)
            page = self._page(attempt, after=page["next"])
            yield from page["items"]
        yield from page["unfinished"]

    def _tail_cursor(self, attempt: int, tail: int) -> str | None:
        """The position before the last ``tail`` lines, none of which is kept."""
        page = self._page(attempt, before="end", limit=min(tail, _PAGE_LINES))
        while (tail := tail - len(page["items"])) > 0 and not page["complete"]:
            page = self._page(attempt, before=page["previous"], limit=min(tail, _PAGE_LINES))
        return page["previous"]

    def _page(self, attempt: int, **where: Any) -> LogLines:
        chosen: Any = {"rank": self.choice.rank, "stream": self.choice.stream, "q": self.grep, "regex": self.regex}
        return self.client.log_lines(self.job_id, attempt, **chosen, **where)


def note_empty(items: Iterable[LogItem], choice: LogFilter) -> Iterator[LogItem]:
    """Note each attempt in which nothing was written, or that there is no attempt; the items stay as they are."""
    last: LogItem | None = None
    for item in items:
        if isinstance(last, AttemptHeader) and isinstance(item, AttemptHeader):
            note(nothing_written(choice, last.attempt))
        last = item
        yield item
    if last is None:
        note("The job has no attempt, so its ranks have written nothing.")
    elif isinstance(last, AttemptHeader):
        note(nothing_written(choice, last.attempt))


def nothing_written(choice: LogFilter, attempt: int) -> str:
    """``rank 0 has written nothing to stdout in attempt 1``."""
    streams = choice.stream or " or ".join(STREAMS)
    who = "no rank has written anything" if choice.rank is None else f"rank {choice.rank} has written nothing"
    return f"{who} to {streams} in attempt {attempt}"


def print_json_lines(items: Iterable[LogItem]) -> None:
    """Print one object a line, in ASCII, so that no text in it can control a terminal."""
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
    coloured: bool = field(default_factory=lambda: out().is_terminal and not out().no_color)

    def write(self, item: LogItem, before: str = "") -> None:
        """Print at once, text after ``before``; raw output contains only what the job wrote."""
        if isinstance(item, AttemptHeader):
            self.write_header(item)
        elif self.raw:
            sys.stdout.buffer.write(self._prefix(item).encode() + item.raw)
            sys.stdout.buffer.flush()
        else:
            for line in item.text.split("\n"):
                dimmed = self.coloured and item.stream == "stderr"
                _print(before + self._prefix(item) + (f"{_DIM}{line}{_RESET}" if dimmed else line))

    def write_header(self, item: AttemptHeader, *, first: bool = False) -> None:
        """Print where an attempt begins; ``first``: also the first one."""
        if item.attempt > 1 or first:
            (note if self.raw else _print)(header(item))

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
    """Drop lines that are drawn over, as a terminal does; ``follow``: keep one drawing every few seconds.

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
        if not (item.raw.endswith(b"\r") or item.raw.rstrip(b"\r\n").endswith(_CURSOR_UP)):
            yield item  # the cursor returns neither to the start of the line nor, as for nested bars, to the one above
        elif not item.text.strip():
            continue  # a bar that is about to be drawn, or was erased
        elif follow and clock() - shown_at.get(source, float("-inf")) >= _BAR_INTERVAL:
            shown_at[source] = clock()
            yield item
        else:
            pending[source] = item
    yield from pending.values()


# --- progress

_REPORTED_SHARE = 0.1  # a line for each tenth of the steps


def wait(context: typer.Context, job: JobArgument, output: OutputOption = "table") -> None:
    """Wait until a job has ended; the exit code reflects the outcome.

    0 succeeded, 1 failed, 3 cancelled, 4 drained and held; 2 wrong command or no server; 130 Ctrl-C.
    Neither Ctrl-C nor a restart of the server affects the job.
    """
    with connect(context) as client:
        raise typer.Exit(follow(client, client.find_job(job)["id"], output))


def follow(client: Client, job_id: str, output: Output = "table", *, with_logs: bool = False) -> ExitCode:
    """Show the job until it is settled, and what its ranks print; a program gets only its final state."""
    try:
        with job_display(output) as show:
            if with_logs and output == "table":
                print_logs(client, job_id, on_job=show)
            for job in client.watch(job_id, note_connection):
                show(job)
    except KeyboardInterrupt:
        note(f"The job keeps running. Wait for it again with: rekindle wait {job_id}")
        note(f"                           or read its output: rekindle logs -f {job_id}")
        return ExitCode.INTERRUPTED
    print_job(job, output, summary(job))
    return exit_code_for(job) or ExitCode.SUCCEEDED


def summary(job: Job) -> str:
    """The line that stays: ``digits succeeded after 2 attempts, in 3 min 2 s``."""
    started, ended = formatting.local_time(job["started_at"]), formatting.local_time(job["ended_at"])
    took = f", in {formatting.duration((ended - started).total_seconds())}" if started and ended else ""
    attempts = f" after {job['attempt']} attempts" if job["attempt"] > 1 else ""
    status = formatting.status_line(job)
    sentence = f"{job['name']} {formatting.state_name(job)}{attempts}{took}"
    return formatting.join([sentence, status], ": ")


def change_line(before: Job | None, job: Job) -> str | None:
    """A line when the state, the attempt or a tenth of the progress has changed, else None."""
    if before is not None and all(before[key] == job[key] for key in ("state", "attempt", "next_try_at")):
        reported, tenths = (int((each["progress"] or 0) / _REPORTED_SHARE + 1e-9) for each in (before, job))
        if tenths <= reported:
            return None
    return formatting.join([job["state"], _progress_details(job)], ": ")


def _progress_details(job: Job) -> str:
    restarts = f"restarts {job['restarts']}" if job["restarts"] else ""
    return formatting.join([formatting.progress(job), restarts, formatting.status_line(job)])


@contextmanager
def job_display(output: Output = "table") -> Iterator[Callable[[Job], None]]:
    """A function that shows a job: nothing for a program, a bar on a terminal, else a line for each change."""
    if output != "table":
        yield lambda job: None
    elif not sys.stdout.isatty():
        reported: Job | None = None

        def print_change(job: Job) -> None:
            nonlocal reported
            line = change_line(reported, job)
            if line is not None:
                print_line(line)
                sys.stdout.flush()
                reported = job

        yield print_change
    else:
        columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        name, details = (TextColumn(f"{{task.fields[{field}]}}", markup=False) for field in ("job", "details"))
        with Progress(name, *columns, details, console=out(), transient=True) as bar:
            task = bar.add_task("", total=None, job="", details="")

            def show(job: Job) -> None:
                name, details = map(sanitize_line, (f"{job['name']} {job['state']}", _progress_details(job)))
                bar.update(task, completed=job["step"] or 0, total=job["steps"], job=name, details=details)

            yield show
