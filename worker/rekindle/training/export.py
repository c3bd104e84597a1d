"""Plain weights out of a snapshot, for any program that knows torch or safetensors; needs no server and no ranks.

    python -m rekindle.training.export FOLDER FILE.safetensors
    python -m rekindle.training.export FOLDER FILE.pt --step 40

FOLDER is a folder of snapshots or one of the snapshots in it; nothing there is changed. A ``.pt`` file holds the state
dict of the model, for ``torch.load(…, weights_only=True)`` and ``load_state_dict``.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from rekindle.contract.files import fsync_directory
from rekindle.training.manifest import MODEL, NAME, BadSnapshotError, Manifest, verify
from rekindle.training.shards import ShardFiles, put_together
from rekindle.training.snapshot_files import read_state
from rekindle.training.snapshot_folder import SnapshotFolder
from rekindle.training.tensor_file import SAFETENSORS, write_safetensors

TORCH = ".pt"


class ExportError(Exception):
    """Nothing was exported; the text says why, and what to do."""


def main() -> None:
    """Says what was exported as one line of JSON. Ends with code 2 and a sentence on stderr where that was nothing."""
    parser = argparse.ArgumentParser(prog="python -m rekindle.training.export", description="Export plain weights.")
    parser.add_argument("folder", type=Path, help="folder of snapshots, or of one snapshot")
    parser.add_argument("file", type=Path, help=f"what to write: a name that ends in {SAFETENSORS} or {TORCH}")
    parser.add_argument("--step", type=int, help="which snapshot; the newest that passes its checks, if left out")
    parser.add_argument("--job", help="the job that the snapshots must belong to")
    parser.add_argument("--force", action="store_true", help="replace the file if there is one")
    chosen = parser.parse_args()
    try:
        told = export(chosen.folder, chosen.file, step=chosen.step, job_id=chosen.job, force=chosen.force)
    except (ExportError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    sys.stdout.write(json.dumps(told) + "\n")


def export(folder: Path, file: Path, *, step: int | None, job_id: str | None, force: bool) -> dict[str, Any]:
    """Write the model's weights to ``file``, whole or not at all, and tell about it. Raises ExportError or OSError."""
    refuse_target(file, force=force)
    manifest, model, passed_over = _choose(folder, step, job_id)
    with _appearing(file, force=force) as temporary:
        if file.suffix == TORCH:
            torch.save(model, temporary)
        else:
            _write_safetensors(model, temporary, manifest)
    return {
        "file": str(file),
        "step": manifest.step,
        "epoch": manifest.epoch,
        "job": manifest.job_id,
        "tensors": sum(isinstance(item, Tensor) for item in model.values()),
        "bytes": file.stat().st_size,
        "passed_over": passed_over,
    }


def refuse_target(file: Path, *, force: bool) -> None:
    """Before any work. Raises ExportError for an unknown kind of file, no place for it, or one that is there."""
    if file.suffix not in (SAFETENSORS, TORCH):
        raise ExportError(f"{file} must end in {SAFETENSORS} or {TORCH}, which says what to write")
    if file.suffix == SAFETENSORS:
        try:
            import safetensors.torch  # noqa: F401  # asked now, since the snapshot may take minutes to read
        except ImportError as error:
            raise ExportError(
                f"the library safetensors is not installed in {sys.executable}: `{sys.executable} -m pip install "
                f"safetensors`, or export to a name that ends in {TORCH}"
            ) from error
    if not file.parent.is_dir():
        raise ExportError(f"{file} cannot be written: there is no folder {file.parent}")
    if file.is_dir():
        raise ExportError(f"{file} is a folder: name a file")
    if file.exists() and not force:
        raise ExportError(f"{file} is there already: --force replaces it, or choose another name")


def read_model(folder: Path, manifest: Manifest) -> dict[str, Any]:
    """The state dict of the model in the snapshot ``folder``, whole, on the CPU; ``manifest`` is of ``verify``.

    Raises ExportError where a script has saved something else with ``Snapshots``.
    """
    try:
        state = read_state(folder / MODEL)
        model = state.get("model") if isinstance(state, dict) else None
        if not isinstance(model, dict):
            raise ExportError(f"{folder / MODEL} must hold a dict with the model's state as 'model', and does not")
        if manifest.sharded:
            files = ShardFiles(folder, manifest.world_size)
            model = put_together({"model": model}, {}, files)["model"]
    except UnpicklingError as error:
        raise ExportError(
            f"{folder} holds more than tensors, numbers and text, so it is not loaded: {error}"
        ) from error
    weights: dict[str, Any] = model
    return weights


_Choice = tuple[Manifest, dict[str, Any], list[str]]  # and why newer ones were passed over


def _choose(folder: Path, step: int | None, job_id: str | None) -> _Choice:
    """A damaged snapshot that was asked for is an error; otherwise the one before it is taken."""
    if not folder.is_dir():
        raise ExportError(f"there is no folder {folder}")
    if (folder / NAME).exists() and folder.name.isdecimal():
        step, folder = int(folder.name), folder.parent
    snapshots = SnapshotFolder(folder, generation="")
    steps = snapshots.steps()
    if not steps:
        raise ExportError(f"{folder} holds no snapshot yet: the first one comes with the first steps of training")
    if step is not None and step not in steps:
        raise ExportError(f"{folder} holds no snapshot of step {step}, only of {', '.join(map(str, steps))}")
    passed_over: list[str] = []
    for each in steps if step is None else [step]:
        try:
            manifest = verify(snapshots.path(each), step=each, job_id=job_id)
            return manifest, read_model(snapshots.path(each), manifest), passed_over
        except (BadSnapshotError, OSError) as error:  # a running job may delete an old one meanwhile
            passed_over.append(f"the snapshot of step {each} must not be used: {error}")
    others = [other for other in steps if other != step]
    hint = f"try --step {others[0]}" if step is not None and others else "there is no other snapshot"
    raise ExportError("; ".join([*passed_over, f"{hint} ({folder})"]))


def _write_safetensors(model: dict[str, Any], path: Path, manifest: Manifest) -> None:
    others = [name for name, item in model.items() if not isinstance(item, Tensor)]
    if others:
        raise ExportError(
            f"{others[0]} in the model's state is a {type(model[others[0]]).__name__}, and {SAFETENSORS} files hold "
            f"tensors only: export to a name that ends in {TORCH}"
        )
    write_safetensors(path, model, {"format": "pt", "step": str(manifest.step), "job": manifest.job_id or ""})


@contextmanager
def _appearing(file: Path, *, force: bool) -> Iterator[Path]:
    """A temporary file to be written within; then it takes its name, on disk, with the rights of any new file."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        rights = temporary.stat().st_mode
        yield temporary
        temporary.chmod(rights)  # safetensors makes a file that its owner alone may read
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        if force:
            temporary.replace(file)
        else:
            _take_name(temporary, file)
        fsync_directory(file.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _take_name(temporary: Path, file: Path) -> None:
    """Unlike a rename, a link never replaces what somebody else has put there meanwhile."""
    try:
        os.link(temporary, file)
    except FileExistsError as error:
        raise ExportError(f"{file} has appeared meanwhile: --force replaces it") from error


if __name__ == "__main__":
    main()
