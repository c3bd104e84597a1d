"""The parts of the pages that the code knows better: commands, REST routes, settings, folders, files.

``python tests/generated_sections.py`` (or ``make generate``) writes them anew; ``docs/test_readme.py`` compares them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from file_tree import ROOT, files, first_sentence, folders

README = ROOT / "README.md"
FILES = ROOT / "docs" / "files.md"


def commands() -> Iterator[str]:
    """Every verb with the first sentence of its help."""
    from rekindle_service.cli.main import app

    yield "| command | does |"
    yield "|---|---|"
    groups = [("", app), *((f"{group.name} ", group.typer_instance) for group in app.registered_groups)]
    for prefix, group in groups:
        for command in group.registered_commands:
            name = prefix + (command.name or command.callback.__name__)
            yield f"| `rekindle {name}` | {first_sentence(command.callback.__doc__)} |"


def routes() -> Iterator[str]:
    """Every route of the interface and of health, with the first sentence of its docstring."""
    from rekindle_service.api import health, prometheus
    from rekindle_service.api.app import API_ROUTERS

    yield "| method and path | does |"
    yield "|---|---|"
    for router, prefix in (
        *((router, "/api/v1") for router in API_ROUTERS),
        (health.router, ""),
        (prometheus.router, ""),
    ):
        for route in router.routes:
            for method in sorted(route.methods):
                yield f"| `{method} {prefix}{route.path}` | {first_sentence(route.endpoint.__doc__)} |"


def settings() -> Iterator[str]:
    """Every setting with its environment variable and default."""
    from rekindle_service.settings import Settings

    told = {"home": "`~/.rekindle`", "cpu_slots": "the cores of this machine", "notify": "nobody"}
    yield "| setting | environment | default | means |"
    yield "|---|---|---|---|"
    for name, field in Settings.model_fields.items():
        default = told.get(name) or ("none" if field.default is None else f"`{field.default}`")
        yield f"| `{name}` | `REKINDLE_{name.upper()}` | {default} | {field.description} |"


SECTIONS: dict[tuple[Path, str], Callable[[], Iterator[str]]] = {
    (README, "commands"): commands,
    (README, "routes"): routes,
    (README, "settings"): settings,
    (README, "folders"): folders,
    (FILES, "files"): files,
}


def section(page: Path, name: str) -> str:
    """What stands between the markers of a section of a page. Raises ValueError where it has no such section."""
    _, begin, rest = page.read_text().partition(f"<!-- {name} -->\n")
    inside, end, _ = rest.partition(f"<!-- /{name} -->")
    if not (begin and end):
        raise ValueError(f"{page} has no section between <!-- {name} --> and <!-- /{name} -->")
    return inside


def rewrite(page: Path, name: str, lines: Iterator[str]) -> None:
    """Put a section in its place as the code would have it."""
    begin = f"<!-- {name} -->\n"
    page.write_text(
        page.read_text().replace(begin + section(page, name), begin + "".join(f"{line}\n" for line in lines))
    )


if __name__ == "__main__":
    for (page, name), lines in SECTIONS.items():
        rewrite(page, name, lines())
