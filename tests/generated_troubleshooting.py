"""The table of docs/troubleshooting.md that comes from the code: the classes of outcome.

``python tests/generated_troubleshooting.py`` (or ``make generate``) writes it; ``docs/test_troubleshooting_page.py``
compares it.
"""

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


SECTIONS: dict[str, Callable[[], Iterator[str]]] = {"outcomes": outcomes}


if __name__ == "__main__":
    for name in SECTIONS:
        write_section(name, SECTIONS[name](), PAGE)
