"""The tables of docs/troubleshooting.md that come from the code: outcome classes and error responses.

``python tests/generated_troubleshooting.py`` (or ``make generate``) writes them; ``docs/test_troubleshooting_page.py``
compares them.
"""

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator

from doc_pages import ROOT
from generated_sections import write_section

PAGE = ROOT / "docs" / "troubleshooting.md"


def outcomes() -> Iterator[str]:
    """Every class of outcome with what its end means, and what a person does."""
    from rekindle.contract.outcome import OutcomeClass
    from rekindle.keeper.retry_policy import ACTIONS, Action
    from rekindle_service.jobs.job_story import ADVICE

    then = {
        Action.FINISH: "the job succeeded",
        Action.RETRY: "retried; counts as a failure",
        Action.RETRY_FREE: "retried; does not count",
        Action.STOP: "not retried",
    }
    yield "| outcome | then | what to do |"
    yield "|---|---|---|"
    for klass in OutcomeClass:
        yield f"| `{klass}` | {then[ACTIONS[klass]]} | {ADVICE[klass]} |"


def problems() -> Iterator[str]:
    """Every kind of error response."""
    from rekindle_service.api.problem_types import PROBLEM_TYPES

    statuses = problem_statuses()
    yield "| type | status | cause | what to do |"
    yield "|---|---|---|---|"
    for slug in sorted(statuses, key=lambda slug: (min(statuses[slug], default=0), slug)):
        each = PROBLEM_TYPES[slug]
        status = ", ".join(map(str, sorted(statuses[slug]))) or "other"
        yield f"| `{slug}` | {status} | {each.cause} | {each.remedy} |"


def problem_statuses() -> dict[str, set[int]]:
    """Every kind of problem that the code of the API names, with its statuses; none where they vary."""
    found: dict[str, set[int]] = defaultdict(set)
    for path in (ROOT / "service" / "rekindle_service" / "api").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id="ApiError"),
                    args=[ast.Constant(value=int(status)), ast.Constant(value=str(slug)), *_],
                ):
                    found[slug].add(status)
                case ast.Tuple(elts=[ast.Constant(value=int(status)), ast.Constant(value=str(slug))]) if "-" in slug:
                    found[slug].add(status)  # of the errors of the store
    explained = {"not-found": {404}, "method-not-allowed": {405}, "bad-request": {400}, "http-error": set[int]()}
    return {**found, **explained}


SECTIONS: dict[str, Callable[[], Iterator[str]]] = {"outcomes": outcomes, "problems": problems}


if __name__ == "__main__":
    for name in SECTIONS:
        write_section(name, SECTIONS[name](), PAGE)
