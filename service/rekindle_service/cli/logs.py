"""`rekindle logs`."""

import json
import sys
from enum import StrEnum
from typing import Annotated

import typer

from rekindle_service.cli import wording
from rekindle_service.cli.exit_codes import ExitCode
from rekindle_service.cli.output import note, out
from rekindle_service.cli.patience import teller
from rekindle_service.cli.progress_bars import latest_drawings
from rekindle_service.cli.session import JobArgument, connect, find_job
from rekindle_service.client import Headline, LogChoice, LogLine

_RANK_COLOURS = ("36", "33", "32", "35", "34", "96", "93", "92", "95", "94")  # SGR foregrounds
_DIM, _RESET = "\x1b[2m", "\x1b[0m"


class LogOutput(StrEnum):
    TEXT = "text"
    JSON = "json"


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"
    BOTH = "both"


def logs(
    context: typer.Context,
    job: JobArgument,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Stay, across attempts, until it has ended.")] = False,
    rank: Annotated[int | None, typer.Option(min=0, help="Only this rank. (default: all)")] = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only this attempt. (default: all)")] = None,
    stream: Annotated[Stream, typer.Option(help="Which output of the ranks.")] = Stream.BOTH,
    tail: Annotated[
        int | None, typer.Option("-n", "--tail", min=1, help="Begin with the last lines of the newest attempt.")
    ] = None,
    output: Annotated[LogOutput, typer.Option("-o", "--output", help="json: an object a line, for programs.")] = (
        LogOutput.TEXT
    ),
    raw: Annotated[bool, typer.Option("--raw", help="Leave control characters in: they act on this terminal.")] = False,
) -> None:
    """Show what the ranks have printed. Ctrl-C leaves the job alone, and so does a restart of the server.

    Of a progress bar only the latest drawing is shown, or with -f one every few seconds; --raw and -o json have all.
    """
    choice = LogChoice(rank, None if stream is Stream.BOTH else stream.value, attempt, tail)
    with connect(context) as client:
        job_id = find_job(client, job)["id"]
        page = _page(output, raw=raw, prefixed=rank is None)
        try:
            pieces = client.logs(job_id, choice, follow=follow, tell=teller(note))
            shown = pieces if raw or output is LogOutput.JSON else latest_drawings(pieces, follow=follow)
            for piece in shown:
                page.write(piece)
        except KeyboardInterrupt:
            note(f"The job goes on. Come back with: rekindle logs -f {job_id}")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        if follow:
            last = client.job(job_id)
            note(f"── {last['state']} {wording.situation(last)}".rstrip() + " ──")


def _page(output: LogOutput, *, raw: bool, prefixed: bool) -> "LogPage | LogObjects":
    if output is LogOutput.JSON:
        return LogObjects()
    return LogPage(raw=raw, prefixed=prefixed, coloured=out().is_terminal and not out().no_color)


class LogObjects:
    """Log lines as JSON, in ASCII, so that no text in it can act on a terminal."""

    def __init__(self) -> None:
        self._attempt = 0

    def write(self, piece: LogLine | Headline) -> None:
        if isinstance(piece, Headline):
            self._attempt = piece.attempt
            return
        text = piece.raw.rstrip(b"\r\n").decode(errors="replace")
        told = {"attempt": self._attempt, "rank": piece.rank, "stream": piece.stream, "text": text}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


class LogPage:
    """Log lines as they are printed."""

    def __init__(self, *, raw: bool, prefixed: bool, coloured: bool) -> None:
        self._raw = raw
        self._prefixed = prefixed
        self._coloured = coloured

    def write(self, piece: LogLine | Headline) -> None:
        """One piece to standard output, at once; raw output keeps nothing but what the job wrote there."""
        if isinstance(piece, Headline):
            if piece.attempt > 1:
                (note if self._raw else self._say)(headline(piece))
        elif self._raw:
            sys.stdout.buffer.write(self._prefix(piece).encode() + piece.raw)
            sys.stdout.buffer.flush()
        else:
            for line in piece.text.split("\n"):
                self._say(self._prefix(piece) + self._tinted(piece, line))

    def _say(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def _prefix(self, piece: LogLine) -> str:
        if not self._prefixed:
            return ""
        prefix = f"[rank {piece.rank}]"
        if self._coloured:
            prefix = f"\x1b[{_RANK_COLOURS[piece.rank % len(_RANK_COLOURS)]}m{prefix}{_RESET}"
        return prefix + " "

    def _tinted(self, piece: LogLine, line: str) -> str:
        return f"{_DIM}{line}{_RESET}" if self._coloured and piece.stream == "stderr" else line


def headline(piece: Headline) -> str:
    """``── attempt 2, resumed from step 120 ──``."""
    resumed = f", resumed from step {piece.resumed_from_step}" if piece.resumed_from_step else ""
    return f"── attempt {piece.attempt}{resumed} ──"
