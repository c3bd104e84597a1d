"""Code on its way to the server: by its path where the server sees it, else as a bundle."""

from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from rekindle_service.cli import wording
from rekindle_service.cli.output import note
from rekindle_service.client import Client, FieldProblem, ProblemError, shares_disk
from rekindle_service.config.settings import Settings
from rekindle_service.jobs.packaging.archive import pack_code
from rekindle_service.jobs.packaging.code_copy import CodeCopyError
from rekindle_service.sanitize import sanitize_line


def code_for(client: Client, settings: Settings, folder: Path) -> dict[str, Any]:
    """The field ``code`` of a job. Raises ProblemError for a folder that cannot be packed."""
    if shares_disk(settings):
        return {"path": str(folder)}
    with TemporaryFile() as archive:
        try:
            packed = pack_code(folder, archive, exclude=settings.home)
        except CodeCopyError as error:
            wrong: FieldProblem = {"field": "code", "rule": error.rule, "value": str(folder), "hint": error.hint}
            raise ProblemError({"title": "Cannot be packed", "detail": str(error), "errors": [wrong]}) from error
        told = f"{packed.files} files, {wording.size(packed.bytes)}, packed {wording.size(archive.tell())}"
        note(f"Uploading {sanitize_line(str(folder))} ({told})")
        archive.seek(0)
        return {"bundle": client.upload_bundle(archive)}


def experiment_with_code(client: Client, settings: Settings, body: dict[str, Any]) -> dict[str, Any]:
    """The request for an experiment whose jobs' code reaches the server."""
    base = body.get("base")
    code = base.get("code") if isinstance(base, dict) else None
    if not isinstance(base, dict) or not isinstance(code, dict) or not isinstance(code.get("path"), str):
        return body
    return {**body, "base": {**base, "code": code_for(client, settings, Path(code["path"]))}}
