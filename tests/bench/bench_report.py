"""The table and the picture of what ``compare_tools.py`` has measured, for docs/evidence.md."""

import math
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from doc_pages import ROOT
from generated_sections import write_section

RESULTS = ROOT / "docs" / "bench.json"
PAGE, PICTURE = ROOT / "docs" / "evidence.md", ROOT / "docs" / "bench.svg"
NONE = "\N{EN DASH}"
OURS = "rekindle"
MEASURES = (  # section, key in a row, title, key in the value
    ("faults", "survived", "faults survived, of 40", ""),
    ("faults", "named", "right cause named, of 40", ""),
    ("faults", "again", "steps replayed per fault survived", ""),
    ("faults", "false alarms", "false alarms, of 4 healthy delays", ""),
    ("recovery", "next step", "kill to next step of any rank, s", "median"),
    ("recovery", "all ranks", "kill to next step of the killed rank, s", "median"),
    ("start", "first step", "submit to first step, s", "median"),
)
Results = Mapping[str, Mapping[str, Any]]


def write_report(results: Results) -> None:
    write_section("bench", table(results), PAGE)
    PICTURE.write_text(picture(results))


def table(results: Results) -> Iterator[str]:
    """The lines of a table for each kind of section that was measured, and of how it was."""
    for part in (_tools, _snapshots, _queues, _growth):
        if lines := list(part(results)):
            yield from (*lines, "")
    yield from _about(results)


def _tools(results: Results) -> Iterator[str]:
    tools = list(dict.fromkeys(name for section, *_ in MEASURES for name in _rows(results, section)))
    yield from _header("two ranks, gloo", *tools)
    for section, key, title, part in MEASURES:
        yield _row(title, *(_cell(_rows(results, section).get(tool, {}).get(key), part) for tool in tools))


def _snapshots(results: Results) -> Iterator[str]:
    if rows := _rows(results, "snapshots"):
        sizes = list(next(iter(rows.values())))
        yield from _header("training waits, durable after; ms", *(f"{size} MiB" for size in sizes), "exponents")
        for method, row in rows.items():
            waits, durable = ({size: row[size][key]["median"] for size in sizes} for key in ("blocked", "durable"))
            cells = (f"{1000 * waits[size]:.1f}, {1000 * durable[size]:.0f}" for size in sizes)
            yield _row(method, *cells, f"{slope(waits):.2f}, {slope(durable):.2f}")


def _queues(results: Results) -> Iterator[str]:
    if rows := _rows(results, "queue"):
        yield from _header("100 jobs of 0.1 s on 2 slots", *rows)
        yield _row("jobs a second", *(f"{row['jobs a second']:.2f}" for row in rows.values()))


def _growth(results: Results) -> Iterator[str]:
    if rows := _rows(results, "growth"):
        yield from _header("cost as work grows", "points", "exponent")
        for name, points in rows.items():
            shown = "; ".join(f"{int(size):,}: {cost:g}" for size, cost in points.items())
            yield _row(name, shown, f"{slope(points):.2f}")


def slope(points: Mapping[str, float]) -> float:
    """The exponent of cost by size: 0 where it does not grow, 1 where it grows as the size; nan for fewer than two."""
    logs = [(math.log(float(size)), math.log(cost)) for size, cost in points.items() if cost > 0]
    if len(logs) < 2:
        return math.nan
    across, up = (sum(each) / len(logs) for each in zip(*logs, strict=True))
    return sum((x - across) * (y - up) for x, y in logs) / sum((x - across) ** 2 for x, _ in logs)


def picture(results: Results) -> str:
    """A panel of bars for each measure of the tools, as SVG."""
    shapes, top = [], 0
    for section, key, title, part in MEASURES:
        found = {tool: row.get(key) for tool, row in _rows(results, section).items()}
        values = {tool: each[part] if part else each for tool, each in found.items() if _cell(each, part) != NONE}
        top += 34
        shapes.append(f'<text x="10" y="{top}" font-weight="bold">{escape(title)}</text>')
        for tool, value in values.items():
            top += 20
            width, color = 400 * value / (max(values.values()) or 1), "#d9480f" if tool == OURS else "#868e96"
            shapes.append(f'<text x="170" y="{top + 4}" text-anchor="end">{escape(tool)}</text>')
            shapes.append(f'<rect x="180" y="{top - 8}" width="{width + 1:.0f}" height="14" fill="{color}"/>')
            shapes.append(f'<text x="{width + 188:.0f}" y="{top + 4}">{value:g}</text>')
    size = f'width="660" height="{top + 20}"'
    style = 'font-family="sans-serif" font-size="13" fill="#212529"'
    background = '<rect width="100%" height="100%" fill="#ffffff"/>'
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>'
    return "\n".join([begin, background, *shapes, "</svg>"]) + "\n"


def _about(results: Results) -> Iterator[str]:
    """When and where each section was measured, what is skipped, and the versions."""
    on: dict[str, list[str]] = {}  # sections by machine
    for section, found in results.items():
        machine = ", ".join(f"{key} {value}" for key, value in found["machine"].items())
        on.setdefault(machine, []).append(f"{section} {found['date']} at load {found['load at start']}")
        for tool, why in found.get("skipped", {}).items():
            yield f"- {section} without {tool}: {' '.join(why.split())[:200]}."
    yield from (f"- {machine}: {'; '.join(sections)}." for machine, sections in on.items())
    if results:
        versions = next(reversed(results.values()))["versions"]
        yield f"- Versions: {', '.join(f'{name} {version}' for name, version in versions.items())}."


def _rows(results: Results, section: str) -> Mapping[str, Any]:
    return results.get(section, {}).get("rows", {})


def _cell(value: Any, part: str) -> str:
    if value is None or (part and part not in value):
        return NONE
    return f"{value['median']:.2f} (p95 {value['p95']:.2f})" if part else f"{value:g}"


def _header(*cells: str) -> Iterator[str]:
    yield _row(*cells)
    yield "|---" * len(cells) + "|"


def _row(*cells: str) -> str:
    return "| " + " | ".join(re.sub(r"\s*\n\s*", " ", cell) for cell in cells) + " |"
