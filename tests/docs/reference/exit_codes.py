"""The page of exit codes, from their definition."""

from collections.abc import Iterator

from docs.reference.enums import meanings
from docs.reference.markdown import GENERATED, code, table
from rekindle_service.cli.terminal import ExitCode

_INTRODUCTION = """\
`rekindle wait`, `rekindle submit --follow` and `rekindle experiment --follow` exit with the outcome of the jobs, so
that a script can act on it; every other command exits with 0, 1, 2 or 130. Where jobs of an experiment differ, a failed
one counts first, then a cancelled one."""


def lines() -> Iterator[str]:
    """The whole page."""
    yield from ("# Exit codes", "", GENERATED, "", *_INTRODUCTION.splitlines(), "")
    found = meanings(ExitCode)
    yield from table(
        ("code", "name", "means"), ((str(int(each)), code(each.name), found[each.name]) for each in ExitCode)
    )
