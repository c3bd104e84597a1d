"""Ranks that do not do the same: the one that is wrong is named with its line, and never the connection that it closed.

``--soak N`` runs every mismatch with and without reported steps, warm and cold, whatever N is.
"""

import itertools

import pytest

from faults.mismatch import KINDS, SCRIPT, begin, plain_limit, verdicts
from rekindle.contract.run_dir.json_records import read_record
from rekindle.keeper.hangs.stall import LONG_TIMEOUT, MIN_STEPS, MIN_TIMEOUT, Pace

WARM = ("early_exit", "unequal_batches", "other_op", "other_group", "evaluation", "stop")
CELLS = [
    cell for cell in itertools.product(KINDS, (True, False), (True, False)) if cell[0] != "run_break" or cell[1]
]  # fmt: skip


def test_a_rank_that_does_not_do_the_same_as_the_others_is_named(prepare):
    run = prepare(SCRIPT, "reports", *WARM, warm=True, hang_timeout=2.0, max_failures=20)
    run.start()
    assert run.finish() == "succeeded"
    found = verdicts(run, WARM)
    assert [(each.kind, each.is_right) for each in found] == [(kind, True) for kind in WARM], found
    assert read_record(run.run_dir.pace, Pace).steps >= MIN_STEPS


@pytest.mark.parametrize(
    ("kind", "warm", "limit"), [("run_break", True, 2.0), pytest.param("other_op", False, None, marks=pytest.mark.soak)]
)
def test_a_rank_is_named_that_breaks_out_of_the_batches_of_a_run_or_has_started_cold(tmp_path, kind, warm, limit):
    run = begin(tmp_path, kind, reports=True, warm=warm, hang_timeout=limit)
    try:
        run.finish()
        found, *_ = verdicts(run, (kind,))
        assert found.is_right, found
    finally:
        run.close()


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("kind", "reports", "warm"), CELLS)
def test_the_rank_and_the_line_are_right_in_time(tmp_path, kind, reports, warm):
    run = begin(tmp_path, kind, reports=reports, warm=warm, hang_timeout=plain_limit(reports=reports, warm=warm))
    try:
        run.finish()
        found, *_ = verdicts(run, (kind,))
        assert found.is_right, found
        if found.outcome["class"] == "hang":
            evidence = found.outcome["evidence"]
            assert evidence["timeout_seconds"] <= (LONG_TIMEOUT if evidence["may_end"] else MIN_TIMEOUT)
    finally:
        run.close()
