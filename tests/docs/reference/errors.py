"""The page of error responses, from their definition and from the code that sends them."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from doc_pages import ROOT
from docs.reference.markdown import GENERATED, code, table
from rekindle_service.api.problem_types import PROBLEM_TYPES

_INTRODUCTION = """\
Every error is `application/problem+json` (RFC 9457): `type` is `/problems/` and a name of this table, `detail` says
what failed, and `errors` lists invalid fields with rule, value and hint. The command line prints `detail` and `errors`,
and ends with exit code 2. Retry only 408, 429, 503 and 507. Retrying a submit is safe with the same
[`Idempotency-Key`](../client.md#retries), which the command line and the Python client set by themselves."""


def lines() -> Iterator[str]:
    """The whole page."""
    yield from ("# Error responses", "", GENERATED, "", *_INTRODUCTION.splitlines(), "")
    statuses = statuses_by_type()
    names = sorted(statuses, key=lambda name: (min(statuses[name], default=0), name))
    yield from table(
        ("type", "status", "cause", "what to do"),
        (
            (
                code(name),
                ", ".join(map(str, sorted(statuses[name]))) or "other",
                PROBLEM_TYPES[name].cause,
                PROBLEM_TYPES[name].remedy,
            )
            for name in names
        ),
    )


def statuses_by_type() -> dict[str, set[int]]:
    """Every error that the code of the API names, with its statuses; none where they vary."""
    found: dict[str, set[int]] = defaultdict(set)
    for path in (ROOT / "service" / "rekindle_service" / "api").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id="ApiError"),
                    args=[ast.Constant(value=int(status)), ast.Constant(value=str(name)), *_],
                ):
                    found[name].add(status)
                case ast.Tuple(elts=[ast.Constant(value=int(status)), ast.Constant(value=str(name))]) if "-" in name:
                    found[name].add(status)  # of the errors of the store
    explained = {"not-found": {404}, "method-not-allowed": {405}, "bad-request": {400}, "http-error": set[int]()}
    return {**found, **explained}
