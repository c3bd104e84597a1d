"""The chart module of the pages: axes, gaps, cursor and range, by mouse and by keyboard."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

_CHART = """async () => {
    const { LineChart } = await import("/static/charts/line-chart.js");
    const { FONT } = await import("/static/charts/chart-painter.js");
    const { frameOf, pixelOf } = await import("/static/charts/chart-frame.js");
    const element = document.createElement("div");
    element.id = "tried";
    element.style.cssText = "position: fixed; left: 0; top: 0; width: 500px; z-index: 9";
    document.body.append(element);
    globalThis.moves = [];
    globalThis.tried = new LineChart(element, {
        label: "tried",
        onCursor: (x) => moves.push(["cursor", x]),
        onRange: (range) => moves.push(["range", range]),
    });
    const content = {
        series: [
            { name: "<img src=x onerror=alert(1)>", x: [0, 10, 20, 30, 40], y: [1, 2, null, 1e308, -1e308] },
            { name: "other", x: [5, 10, 4], y: [0.001, NaN, 3], dash: true, faded: true, colour: "--curve-3" },
            { name: "empty", x: [], y: [] },
        ],
        marks: [{ x: 10, label: "attempt 2", kind: "attempt" }, { x: 99, label: "later", kind: "attempt" }],
        x: { kind: "number", title: "step" },
    };
    tried.draw(content);
    const context = Object.assign(document.createElement("canvas").getContext("2d"), { font: FONT });
    const measure = (text) => context.measureText(text).width;
    globalThis.pixelAt = (x, range) => pixelOf(frameOf(content, range, { width: 500, height: 180 }, measure).x, x);
}"""
_MODULES = """async () => {
    const { axisTicks, logTicks } = await import("/static/charts/ticks.js");
    const { frameOf, nearest, pixelOf, runsOf, valueAt } = await import("/static/charts/chart-frame.js");
    const { colourOf } = await import("/static/charts/palette.js");
    const labels = (ticks) => ticks.map(({ label }) => label);
    const curve = (x, y) => ({ name: "", x, y });
    const size = { width: 460, height: 200 };
    const frame = (series, y = {}) => frameOf({ series, x: { kind: "number" }, y }, null, size, () => 20);
    const gapped = curve([0, 1, 2, 3, 4], [1, 1, null, 1, 1]);
    const back = curve([0, 5, 3, 10], [1, 2, 3, 4]);
    const steps = [...Array(10000).keys()];
    const many = curve(steps, steps.map((index) => (index === 5000 ? 100 : index % 2)));
    const single = curve([0, 1], [1, 1]);
    const finite = (scale) => Number.isFinite(scale.min) && Number.isFinite(scale.max) && scale.max > scale.min;
    const colours = (count) => new Set(Array.from({ length: count }, (_, index) => colourOf(index, count))).size;
    const one = (kind, at) => frameOf({ series: [curve([at], [0.5])], x: { kind } }, null, size, () => 20);
    const few = [[0, 1], [0.9, 1.08], [0, 7], [3, 4.1], [0, 23], [99, 101]];
    const idle = [{ from: 100, to: 1100, shown: 10 }, { from: 1150, to: 1250, shown: 10 }];
    const night = { min: 50, max: 1300, from: 0, to: 170, log: false, idle };
    const odd = [[], [NaN], [0], [1e308, -1e308], [5, 5], [1e-320]].map((y) => frame([curve(y.map((_, at) => at), y)]));
    return {
        numbers: labels(axisTicks("number", 0, 1000, 4)),
        small: labels(axisTicks("number", 1e-7, 4e-7, 4)),
        large: labels(axisTicks("number", 0, 2e300, 3)),
        seconds: labels(axisTicks("duration", 0, 100, 5)),
        hours: labels(axisTicks("duration", 0, 9000, 4)),
        logarithmic: [labels(logTicks(0.001, 1000, 4)), labels(logTicks(1, 9, 4)), labels(logTicks(3, 4, 4))],
        times: [30, 7200, 864000].map((span) => labels(axisTicks("time", 1e9, 1e9 + span, 3))),
        runs: [gapped, back].map((each) => runsOf(each, frame([each])).map((run) => run.length)),
        thinned: runsOf(many, frame([many]))[0].length,
        peak: Math.min(...runsOf(many, frame([many]))[0].map(([, y]) => y)) < 20,
        nearest: [[gapped, 2.2], [single, 4], [curve([], []), 1]].map(([of, at]) => nearest(of, at, frame([gapped]))),
        finite: odd.every(({ x, y }) => finite(x) && finite(y)),
        noLog: frame([curve([1, 2], [-1, 0])], { log: true }).y.max,
        single: [["whole", 1], ["whole", 0], ["time", 1e9]].map(([kind, at]) => {
            const { x, xTicks } = one(kind, at);
            return [x.max - x.min, xTicks.length];
        }),
        whole: labels(axisTicks("whole", 0, 2, 6)),
        fewest: Math.min(...few.map(([low, high]) => Math.min(
            axisTicks("number", low, high, 1).length,
            axisTicks("duration", low, high, 1).length,
            logTicks(low + 0.01, high, 2).length,
        ))),
        idle: [50, 100, 600, 1100, 1150, 1300].map((at) => pixelOf(night, at)),
        back: [0, 40, 55, 60, 65, 170].map((pixel) => valueAt(night, pixel)),
        idleTicks: axisTicks("time", 50, 1300, 4, idle).map(({ at }) => at),
        colours: [3, 8, 12, 50].map(colours),
    };
}"""


@pytest.fixture
def chart(modules: Page) -> Iterator[Page]:
    modules.mouse.move(1200, 800)  # away from where the chart is put
    modules.evaluate(_CHART)
    yield modules
    modules.evaluate("document.getElementById('tried').remove()")


def test_the_values_at_the_cursor_are_shown_for_mouse_and_keyboard(chart: Page) -> None:
    plot = chart.get_by_role("slider", name="tried")
    summary = "3 curves of 7 points, step 0 to 40, attempt 2, later"
    expect(plot).to_have_attribute("aria-description", summary)
    plot.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        chart.keyboard.press(key)
    expect(plot).to_have_attribute("aria-valuenow", "10")
    expect(plot).to_have_attribute("aria-valuetext", "step 10, attempt 2, <img src=x onerror=alert(1)> 2")
    chart.keyboard.press("ArrowLeft")
    expect(plot).to_have_attribute("aria-valuetext", "step 5, <img src=x onerror=alert(1)> 1, other 0.001")
    expect(plot.locator(".chart-tip bdi")).to_have_text(["<img src=x onerror=alert(1)>", "other"])
    assert moves(chart) == [["cursor", 4], ["cursor", 5], ["cursor", 10], ["cursor", 5]]
    chart.keyboard.press("+")
    assert moves(chart)[-1] == ["range", [2.5, 22.5]]
    expect(plot).to_have_attribute("aria-valuemax", "22.5")
    chart.keyboard.press("Escape")
    expect(plot).to_have_attribute("aria-valuemax", "40")
    move_to(chart, 10, [0, 40])
    expect(plot).to_have_attribute("aria-valuenow", re.compile(r"^(9\.9|10\b)"))
    assert chart.locator("#tried img").count() == 0


def test_dragging_enlarges_a_part_a_double_click_shows_everything_and_the_owner_is_not_called_for_its_own_calls(
    chart: Page,
) -> None:
    plot = chart.get_by_role("slider", name="tried")
    expect(plot).to_have_attribute("aria-valuemax", "40")
    chart.evaluate("tried.setCursor(20), tried.setRange([10, 30])")
    expect(plot).to_have_attribute("aria-valuemin", "10")
    expect(plot).to_have_attribute("aria-valuenow", "20")
    assert moves(chart) == []
    move_to(chart, 15, [10, 30])
    chart.mouse.down()
    move_to(chart, 20, [10, 30])
    chart.mouse.up()
    expect(plot).to_have_attribute("aria-valuemin", re.compile(r"^(14\.9|15\b)"))
    expect(plot).to_have_attribute("aria-valuemax", re.compile(r"^(19\.9|20\b)"))
    plot.dblclick()
    expect(plot).to_have_attribute("aria-valuemax", "40")
    chosen = pytest.approx([15, 20], abs=0.1)
    assert [move for move in moves(chart) if move[0] == "range"] == [["range", chosen], ["range", None]]
    picture = "async () => [...new Uint8Array(await (await tried.toPng()).slice(0, 4).arrayBuffer())]"
    assert bytes(chart.evaluate(picture)) == b"\x89PNG"


def test_axes_have_round_ticks_and_curves_their_gaps_peaks_and_turns(modules: Page) -> None:
    found = modules.evaluate(_MODULES)
    assert found["numbers"] == ["0", "500", "1,000"]
    assert found["small"] == ["1e-7", "2e-7", "3e-7", "4e-7"]
    assert found["large"] == ["0", "1e300", "2e300"]
    assert found["seconds"] == ["0", "30 s", "1 min", "1:30 min"]
    assert found["hours"] == ["0", "1 h", "2 h"]
    assert found["logarithmic"] == [["0.001", "0.1", "10", "1000"], ["1", "2", "5"], ["3.0", "3.5", "4.0"]]
    assert all(1 <= len(labels) <= 6 for labels in found["times"])
    assert found["runs"] == [[2, 2], [4]], "a gap stays a gap, and where the clock goes back, so does the curve"
    assert found["thinned"] < 4 * 460
    assert found["peak"], "a peak of one point stays visible"
    assert found["nearest"] == [3, None, None]
    assert found["finite"]
    assert found["noLog"] == 10
    assert found["single"] == [[2, 3], [1, 2], [60, 4]], "a curve of one point has an axis of whole steps"
    assert found["whole"] == ["0", "1", "2"]
    assert found["fewest"] >= 3
    assert found["idle"] == pytest.approx([0, 50, 55, 60, 110, 170]), "a long wait is drawn short"
    assert found["back"] == pytest.approx([50, 90, 600, 1100, 1105, 1300])
    assert not [at for at in found["idleTicks"] if 100 < at < 1100 or 1150 < at < 1250]
    assert found["colours"] == [3, 8, 12, 50]


def move_to(page: Page, x: float, shown: list[float]) -> None:
    """Point at a value of the axis, which shows this range."""
    page.mouse.move(page.evaluate("([x, shown]) => pixelAt(x, shown)", [x, shown]), 60)


def moves(page: Page) -> list[Any]:
    return list(page.evaluate("moves"))
