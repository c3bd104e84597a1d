"""The recipes that a job may name, found without importing them: they need torch, which the service never loads."""

import ast
import importlib.util
from pathlib import Path


def recipes() -> dict[str, str]:
    """Name → first line of its docstring. A recipe is a file of ``rekindle.recipes`` whose docstring says "Recipe"."""
    spec = importlib.util.find_spec("rekindle")
    if spec is None or spec.submodule_search_locations is None:
        return {}
    files = sorted(Path(spec.submodule_search_locations[0], "recipes").glob("*.py"))
    titles = {file.stem: _title(file) for file in files}
    return {name: title for name, title in titles.items() if title.startswith("Recipe")}


def _title(file: Path) -> str:
    docstring = ast.get_docstring(ast.parse(file.read_bytes())) or ""
    return docstring.partition("\n")[0]
