"""An experiment of the user's own: a TOML or JSON file, to the body of ``POST /experiments``."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import typer

from rekindle_service.cli import request_body


def read_experiment(path: Path) -> dict[str, Any]:
    """What the file says; paths in it are relative to its folder. Raises BadParameter where it cannot be read.

    A script without ``code`` is taken with the whole folder of the file.
    """
    try:
        text = path.read_text()
        body = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"--file {path}: {error}") from None
    if not isinstance(body, dict):
        raise typer.BadParameter(f"--file {path}: must hold an object, not a {type(body).__name__}")
    base = body.get("base", {})
    return {"name": path.stem, **body, "base": _located(base, path.parent)} if isinstance(base, dict) else body


def _located(base: dict[str, Any], folder: Path) -> dict[str, Any]:
    """``base`` with paths that mean the same for the server."""
    code, python = base.get("code"), base.get("python")
    located = dict(base)
    if isinstance(code, dict) and isinstance(code.get("path"), str):
        located["code"] = {**code, "path": str((folder / code["path"]).resolve())}
    elif code is None and not {"recipe", "module"} & base.keys():
        located["code"] = {"path": str(folder.resolve())}
    if isinstance(python, str):
        located["python"] = request_body.interpreter(python, os.environ, folder)
    return located
