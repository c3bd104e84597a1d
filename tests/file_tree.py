"""The files and folders of the repository, each with a line about what it is for."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

_FILES = {
    ".ci/browser": "Chromium from apt, for the tests of the page",
    ".ci/run": "everything that must hold before a change lands",
    ".gitignore": "what a working copy leaves behind",
    "CHANGELOG.md": "what each version changed",
    "LICENSE": "Apache-2.0",
    "Makefile": "make demo, make test, make generate, make clean",
    "README.md": "what rekindle is, in five minutes, and all of its commands, settings and routes",
    "constraints.txt": "the versions that the tests ran with",
    "pyproject.toml": "the package, its dependencies and the configuration of every tool",
    "deploy/README.md": "how to run rekindle as a service",
    "deploy/rekindle-user.service": "systemd unit for one user",
    "deploy/rekindle.service": "systemd unit for a machine",
    "docs/files.md": "this page",
    "docs/page.png": "the picture of the README",
    "docs/failures.md": "how failures are noticed, judged and recovered from, and what that costs",
    "docs/snapshots.md": "what snapshots promise, their form on disk, and what was run",
    "docs/ecosystem.md": "Lightning, Trainer, Accelerate, TensorBoard, W&B, MLflow and Hydra as they are",
    "docs/experiments.md": "sets of jobs and the tables that compare them, with those that come with rekindle",
    "docs/training.md": "a training loop with `rekindle.Run`, every argument and method, and loops without it",
    "docs/pages.md": "what each page of the browser is for",
    "docs/recipes.md": "every way to divide a training: when to use it, what it costs, what goes wrong",
    "docs/performance.md": "what watching costs, how soon an event is on the page, and how that was measured",
    "docs/client.md": "the Python client, blocking and asynchronous",
    "docs/notifications.md": "webhooks and commands that are told what happens to jobs",
    "docs/monitoring.md": "health, and figures for Prometheus",
    "script.py.mako": "what alembic begins a new migration with",
    "py.typed": "this package has type hints",
    "layout.html": "what all pages but the sign-in have around their own part",
    "confirm-dialog.html": "the dialog that must be confirmed before something is done to jobs",
    "form-fields.html": "a labelled field of a form",
    "gone.html": "the message for a job or an experiment that does not exist",
    "metric-charts.html": "the card with charts of metrics",
    "tables.html": "the head of a table",
    "queue.html": "the list of jobs",
    "job.html": "the page of one job",
    "experiment.html": "the page of one experiment",
    "experiments.html": "the list of experiments",
    "submit.html": "the form that submits a job",
    "compare.html": "the comparison of jobs",
    "machine.html": "this machine",
    "login.html": "the sign-in page",
    "base.css": "colours, type and parts that every page shares",
    "cards.css": "pages made of cards",
    "charts.css": "charts of metrics and their controls",
    "queue.css": "the list of jobs",
    "job.css": "the page of one job",
    "experiments.css": "the pages of experiments",
    "submit.css": "the form that submits a job",
    "compare.css": "the comparison of jobs",
    "machine.css": "this machine",
    "log.css": "the log viewer",
    "deno.json": "the type check of the pages' JavaScript",
    "logo.svg": "the sign",
}

_FOLDERS = {
    ".ci": "what must hold before a change lands",
    "deploy": "rekindle as a service of systemd",
    "docs": "pages too long for this one",
    "docs/examples": "one training as each library has it",
    "service": "what serves: HTTP, the queue, the command line; never imports torch",
    "service/rekindle_service": "settings, the engine that turns rows into keepers, and what its parts share",
    "service/rekindle_service/migrations/versions": "a file for each step",
    "service/rekindle_service/web": "the pages of the browser",
    "service/rekindle_service/web/static": "what the pages load: CSS and JavaScript modules, sent unchanged",
    "service/rekindle_service/web/static/charts": "charts of metrics, drawn by Plotly",
    "service/rekindle_service/web/static/compare": "the comparison of jobs",
    "service/rekindle_service/web/static/events": "the event stream, one connection for all tabs",
    "service/rekindle_service/web/static/experiments": "the list of experiments, and the page of one",
    "service/rekindle_service/web/static/job": "the page of one job",
    "service/rekindle_service/web/static/log": "the log viewer",
    "service/rekindle_service/web/static/login": "the sign-in page",
    "service/rekindle_service/web/static/machine": "the page of this machine",
    "service/rekindle_service/web/static/queue": "the list of jobs",
    "service/rekindle_service/web/static/shared": "the API, elements, formats, and what jobs have on every page",
    "service/rekindle_service/web/static/submit": "the form that submits a job",
    "service/rekindle_service/web/templates": "the HTML of each page",
    "tests": "fixtures and helpers of all tests",
    "tests/bench": "ratios against peers, each in one run; not part of `make test`",
    "tests/bench/scripts": "trainings that are measured",
    "tests/docs": "what README and docs say is so",
    "tests/docs/scripts": "trainings that the shown commands submit",
    "tests/e2e": "real torchrun, real server, real browser",
    "tests/e2e/pages": "every page in Chromium",
    "tests/e2e/scripts": "trainings that these submit",
    "tests/ecosystem": "libraries that `make test` does not install",
    "tests/fakes": "stand-ins for what this machine lacks",
    "tests/faults": "a fault at a coordinate, and the job ends as it must",
    "tests/faults/scripts": "trainings that are struck",
    "tests/integration": "real SQLite, real app, real processes",
    "tests/unit": "pure, without torch",
    "worker": "what trains",
    "worker/rekindle/recipes": "every way to divide a training, as jobs",
}


def files() -> Iterator[str]:
    """Every tracked file with the first sentence of what it says about itself."""
    yield "```text"
    folder = Path()
    for path in tracked():
        yield from (f"{_indent(each)}{each.name}/" for each in _entered(folder, path.parent))
        folder = path.parent
        yield _line(path.name, path, gloss(path))
    yield "```"


def folders() -> Iterator[str]:
    """Every folder with tracked files in or below it, and what it is for."""
    yield "```text"
    folder = Path()
    for path in tracked():
        for each in _entered(folder, path.parent):
            yield _line(f"{each.name}/", each, _folder_gloss(each))
        folder = path.parent
    yield "```"


def tracked() -> list[Path]:
    """The files of the repository in the order of the tree; those that only mark a package are left out."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [Path(name) for name in listing.split("\0") if name]
    kept = [path for path in paths if path.name not in ("py.typed", "__init__.py") or _says_something(path)]
    return sorted(kept, key=lambda path: [(False, part) for part in path.parts[:-1]] + [(True, path.name)])


def _says_something(path: Path) -> bool:
    return path.name == "__init__.py" and (ROOT / path).stat().st_size > 0


def _entered(before: Path, now: Path) -> list[Path]:
    """The folders that are begun on the way from one folder to the next, outermost first."""
    chain = [folder for folder in (now, *now.parents) if folder != Path()]
    return [folder for folder in reversed(chain) if not before.is_relative_to(folder)]


def _indent(path: Path) -> str:
    return "  " * (len(path.parts) - 1)


def _line(name: str, path: Path, told: str) -> str:
    indent = _indent(path)
    return f"{indent}{name:<{max(1, 34 - len(indent))}} {told}".rstrip()


def gloss(path: Path) -> str:
    """One line about a file: its own first sentence, else the one above. Raises KeyError when there is neither."""
    if str(path) in _FILES or path.name in _FILES:
        return _FILES.get(str(path)) or _FILES[path.name]
    text = (ROOT / path).read_text()
    if path.suffix == ".py":
        return first_sentence(ast.get_docstring(ast.parse(text)) or "")
    if path.suffix in (".js", ".ts"):
        return first_sentence(re.sub(r"^\s*\*? ?", "", text.partition("/**")[2].partition("*/")[0], flags=re.M))
    raise KeyError(f"{path}: say what it is for in {Path(__file__).name}")


def _folder_gloss(folder: Path) -> str:
    package = ROOT / folder / "__init__.py"
    own = first_sentence(ast.get_docstring(ast.parse(package.read_text())) or "") if package.exists() else ""
    if not (own or str(folder) in _FOLDERS):
        raise KeyError(f"{folder}: say what it is for in {Path(__file__).name}")
    return own or _FOLDERS[str(folder)]


def first_sentence(text: str | None) -> str:
    """Of a docstring, as it may stand in a table."""
    paragraph = " ".join((text or "").strip().partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0].rstrip(".").replace("``", "`").replace("|", "\\|")
