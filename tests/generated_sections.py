"""The sections of README.md that are generated from the code: commands, REST routes and settings.

``python tests/generated_sections.py`` (or ``make generate``) writes them; ``docs/test_readme.py`` compares them.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from doc_pages import ROOT

README = ROOT / "README.md"


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
    from rekindle_service.api.app import API_ROUTERS
    from rekindle_service.api.routes import monitoring

    yield "| method and path | does |"
    yield "|---|---|"
    for router, prefix in (*((router, "/api/v1") for router in API_ROUTERS), (monitoring.router, "")):
        for route in router.routes:
            for method in sorted(route.methods):
                yield f"| `{method} {prefix}{route.path}` | {first_sentence(route.endpoint.__doc__)} |"


def settings() -> Iterator[str]:
    """Every setting with its environment variable and default."""
    from rekindle_service.config.settings import Settings

    computed = {"home": "`~/.rekindle`", "cpu_slots": "the cores of this machine", "notify": "none"}
    computed |= dict.fromkeys(("job_users", "sandbox_read", "sandbox_write", "pass_env", "quotas"), "none")
    yield "| setting | environment | default | means |"
    yield "|---|---|---|---|"
    for name, field in Settings.model_fields.items():
        default = computed.get(name) or ("none" if field.default is None else f"`{field.default}`")
        yield f"| `{name}` | `REKINDLE_{name.upper()}` | {default} | {field.description} |"


SECTIONS: dict[str, Callable[[], Iterator[str]]] = {"commands": commands, "routes": routes, "settings": settings}


def section(name: str, page: Path = README) -> str:
    """What a page has between the markers of a section. Raises ValueError where it has no such section."""
    _, begin, rest = page.read_text().partition(f"<!-- {name} -->\n")
    inside, end, _ = rest.partition(f"<!-- /{name} -->")
    if not (begin and end):
        raise ValueError(f"{page} has no section between <!-- {name} --> and <!-- /{name} -->")
    return inside


def write_section(name: str, lines: Iterable[str], page: Path = README) -> None:
    """Replace what a page has between the markers of a section."""
    begin = f"<!-- {name} -->\n"
    generated = "".join(f"{line}\n" for line in lines)
    page.write_text(page.read_text().replace(begin + section(name, page), begin + generated))


def first_sentence(text: str | None) -> str:
    """The first sentence of a docstring, as a cell of a Markdown table."""
    paragraph = " ".join((text or "").strip().partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0].rstrip(".").replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    for name in SECTIONS:
        write_section(name, SECTIONS[name]())
