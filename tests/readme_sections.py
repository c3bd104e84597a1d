"""The parts of the README that the code knows better: commands, REST routes, settings, files.

``python tests/readme_sections.py`` (or ``make readme``) writes them anew; ``docs/test_readme.py`` compares them.
"""

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"

_FILES = {
    ".ci/browser": "Chromium from apt, for the tests of the page",
    ".ci/run": "everything that must hold before a change lands",
    ".gitignore": "what a working copy leaves behind",
    "CHANGELOG.md": "what each version changed",
    "LICENSE": "Apache-2.0",
    "Makefile": "make demo, make test, make readme, make clean",
    "README.md": "this page",
    "constraints.txt": "the versions that the tests ran with",
    "pyproject.toml": "the package, its dependencies and the configuration of every tool",
    "deploy/README.md": "how to run rekindle as a service",
    "deploy/rekindle-user.service": "systemd unit for one user",
    "deploy/rekindle.service": "systemd unit for a machine",
    "docs/page.png": "the picture above",
    "docs/failures.md": "how failures are noticed, judged and recovered from, and what that costs",
    "docs/snapshots.md": "what snapshots promise, their form on disk, and what was run",
    "docs/ecosystem.md": "Lightning, Trainer, Accelerate, TensorBoard, W&B, MLflow and Hydra as they are",
    "docs/experiments.md": "sets of jobs and the tables that compare them, with those that come with rekindle",
    "docs/pages.md": "what each page of the browser is for",
    "docs/recipes.md": "every way to divide a training: when to use it, what it costs, what goes wrong",
    "docs/performance.md": "what watching costs, how soon an event is on the page, and how that was measured",
    "docs/client.md": "the Python client, blocking and asynchronous",
    "docs/notifications.md": "webhooks and commands that are told what happens to jobs",
    "docs/monitoring.md": "health, and figures for Prometheus",
    "script.py.mako": "what alembic begins a new migration with",
    "py.typed": "this package has type hints",
    "index.html": "the list of jobs",
    "job.html": "the page of one job",
    "experiment.html": "the page of one experiment",
    "experiments.html": "the list of experiments",
    "submit.html": "the form that submits a job",
    "compare.html": "the comparison of jobs",
    "machine.html": "this machine",
    "login.html": "the sign-in page",
    "style.css": "colours, type and parts that every page shares",
    "queue.css": "the list of jobs",
    "job.css": "the page of one job",
    "experiment.css": "the pages of experiments",
    "submit.css": "the form that submits a job",
    "compare.css": "the comparison of jobs",
    "machine.css": "this machine",
    "log.css": "the log viewer",
    "logo.svg": "the sign",
}


def commands() -> Iterator[str]:
    """Every verb with the first sentence of its help."""
    from rekindle_service.cli.main import app

    yield "| command | does |"
    yield "|---|---|"
    groups = [("", app), *((f"{group.name} ", group.typer_instance) for group in app.registered_groups)]
    for prefix, group in groups:
        for command in group.registered_commands:
            name = prefix + (command.name or command.callback.__name__)
            yield f"| `rekindle {name}` | {_first_sentence(command.callback.__doc__)} |"


def routes() -> Iterator[str]:
    """Every route of the interface and of health, with the first sentence of its docstring."""
    from rekindle_service.api import (
        bundles,
        chaos,
        configuration,
        devices,
        downloads,
        event_stream,
        experiments,
        health,
        job_time,
        jobs,
        log_search,
        machine,
        prometheus,
        ranks,
        recipes,
        records,
        snapshots,
        summary,
        usage,
    )

    yield "| method and path | does |"
    yield "|---|---|"
    modules = (
        jobs,
        summary,
        ranks,
        usage,
        log_search,
        downloads,
        chaos,
        records,
        job_time,
        snapshots,
        configuration,
        bundles,
        recipes,
        experiments,
        devices,
        machine,
        event_stream,
    )
    for module, prefix in (*((module, "/api/v1") for module in modules), (health, ""), (prometheus, "")):
        for route in module.router.routes:
            for method in sorted(route.methods):
                yield f"| `{method} {prefix}{route.path}` | {_first_sentence(route.endpoint.__doc__)} |"


def settings() -> Iterator[str]:
    """Every setting with its environment variable and default."""
    from rekindle_service.settings import Settings

    told = {"home": "`~/.rekindle`", "cpu_slots": "the cores of this machine", "notify": "nobody"}
    yield "| setting | environment | default | means |"
    yield "|---|---|---|---|"
    for name, field in Settings.model_fields.items():
        default = told.get(name) or ("none" if field.default is None else f"`{field.default}`")
        yield f"| `{name}` | `REKINDLE_{name.upper()}` | {default} | {field.description} |"


def tree() -> Iterator[str]:
    """Every tracked file with the first sentence of what it says about itself."""
    yield "```text"
    folder = Path()
    for path in tracked():
        for depth, part in enumerate(path.parts[:-1]):
            if folder.parts[: depth + 1] != path.parts[: depth + 1]:
                yield "  " * depth + part + "/"
        folder = path.parent
        indent = "  " * (len(path.parts) - 1)
        yield f"{indent}{path.name:<{max(1, 34 - len(indent))}} {gloss(path)}".rstrip()
    yield "```"


SECTIONS: dict[str, Callable[[], Iterator[str]]] = {
    "commands": commands,
    "routes": routes,
    "settings": settings,
    "tree": tree,
}


def tracked() -> list[Path]:
    """The files of the repository in the order of the tree; those that only mark a package are left out."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [Path(name) for name in listing.split("\0") if name]
    kept = [path for path in paths if path.name not in ("py.typed", "__init__.py") or _says_something(path)]
    return sorted(kept, key=lambda path: [(False, part) for part in path.parts[:-1]] + [(True, path.name)])


def _says_something(path: Path) -> bool:
    return path.name == "__init__.py" and (ROOT / path).stat().st_size > 0


def gloss(path: Path) -> str:
    """One line about a file: its own first sentence, else the one above. Raises KeyError when there is neither."""
    if str(path) in _FILES or path.name in _FILES:
        return _FILES.get(str(path)) or _FILES[path.name]
    text = (ROOT / path).read_text()
    if path.suffix == ".py":
        return _first_sentence(ast.get_docstring(ast.parse(text)) or "")
    if path.suffix == ".js":
        return _first_sentence(re.sub(r"^\s*\*? ?", "", text.partition("/**")[2].partition("*/")[0], flags=re.M))
    raise KeyError(f"{path}: say what it is for in {Path(__file__).name}")


def _first_sentence(text: str | None) -> str:
    paragraph = " ".join((text or "").strip().partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0].rstrip(".").replace("``", "`").replace("|", "\\|")


def section(text: str, name: str) -> str:
    """What stands between the markers of a section in ``text``. Raises ValueError where it has no such section."""
    _, begin, rest = text.partition(f"<!-- {name} -->\n")
    inside, end, _ = rest.partition(f"<!-- /{name} -->")
    if not (begin and end):
        raise ValueError(f"{README} has no section between <!-- {name} --> and <!-- /{name} -->")
    return inside


def rewritten(text: str) -> str:
    """``text`` with every section as the code would have it."""
    for name, lines in SECTIONS.items():
        begin = f"<!-- {name} -->\n"
        text = text.replace(begin + section(text, name), begin + "".join(f"{line}\n" for line in lines()))
    return text


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text()))
