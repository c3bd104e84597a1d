"""The table and the picture of the measurements of several tools."""

import math

import pytest

from bench.bench_report import NONE, picture, slope, table

TIMES = {"count": 2, "median": 0.5, "p95": 0.625}
ABOUT = {
    "command": "c", "date": "2026-01-02", "load at start": 0.5, "machine": {"cores": 2}, "versions": {"torch": "2"}
}  # fmt: skip
RESULTS = {
    "faults": {"rows": {"Ray Train": {"survived": 39}, "rekindle": {"survived": 40}}, **ABOUT},
    "recovery": {"rows": {"rekindle": {"next step": TIMES}, "Ray Train": {"next step": {"count": 0}}}, **ABOUT},
    "growth": {"rows": {"ranks, ms": {"2": 1.0, "64": 32.0}}, "skipped": {"pueue": "nowhere"}, **ABOUT},
}


@pytest.mark.parametrize(("cost", "exponent"), [(lambda n: 3 * n, 1), (lambda n: 5, 0), (lambda n: n * n, 2)])
def test_the_exponent_says_how_cost_grows_with_size(cost, exponent) -> None:
    assert slope({str(size): cost(size) for size in (2, 8, 64)}) == pytest.approx(exponent)
    assert math.isnan(slope({"2": 1.0})), "one point has no slope"
    assert math.isnan(slope({"2": 0.0, "4": 1.0}))


def test_the_table_has_a_column_for_each_tool_and_a_dash_for_what_was_not_measured() -> None:
    lines = list(table(RESULTS))
    assert lines[0] == "| two ranks, gloo | Ray Train | rekindle |"
    assert "| faults survived, of 40 | 39 | 40 |" in lines
    assert f"| kill to next step of any rank, s | {NONE} | 0.50 (p95 0.62) |" in lines
    assert f"| submit to first step, s | {NONE} | {NONE} |" in lines
    assert "| ranks, ms | 2: 1; 64: 32 | 1.00 |" in lines
    assert "- growth without pueue: nowhere." in lines


def test_the_picture_has_a_bar_for_each_value() -> None:
    assert picture(RESULTS).count("<rect ") == 1 + 2 + 1  # the background, faults, recovery
