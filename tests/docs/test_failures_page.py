"""docs/failures.md says of every class of outcome what the retry policy does."""

import re

from doc_pages import ROOT
from rekindle.contract.outcome import OutcomeClass
from rekindle.keeper.retry_policy import ACTIONS, Action

THEN = {
    Action.FINISH: "the job is over",
    Action.RETRY: "retry",
    Action.RETRY_FREE: "retry; never counts",
    Action.STOP: "stop",
}


def test_the_table_of_classes_has_the_action_of_each() -> None:
    page = (ROOT / "docs" / "failures.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| ([^|]*) \|$", page, re.MULTILINE))
    assert rows == {str(klass): THEN[ACTIONS[klass]] for klass in OutcomeClass}
