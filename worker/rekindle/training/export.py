"""Export plain weights from a snapshot, for any program that reads torch or safetensors files. Needs no server.

    python -m rekindle.training.export DIRECTORY FILE.safetensors
    python -m rekindle.training.export DIRECTORY FILE.pt --step 40

DIRECTORY has the snapshots, or is one of them; nothing there is changed. A ``.pt`` file holds the state dict of the
model, for ``torch.load(…, weights_only=True)`` and ``load_state_dict``.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, cast

import torch
from torch import Tensor

from rekindle.contract.files import fsync_directory
from rekindle.contract.run_dir.snapshot_dir import MANIFEST, MODEL, BadSnapshotError, Manifest, SnapshotDir
from rekindle.training.snapshots.directory import verify
from rekindle.training.snapshots.dtensor_io import ShardFiles, reshard
from rekindle.training.snapshots.state_files import SAFETENSORS, read_state, write_safetensors

TORCH = ".pt"


class ExportError(Exception):
    """Nothing was exported; the text has the reason, and what to do."""


def main() -> None:
    """Print what was exported as one line of JSON; exit with code 2 and a sentence on stderr where nothing was."""
    parser = argparse.ArgumentParser(prog="python -m rekindle.training.export", description="Export plain weights.")
    parser.add_argument("directory", type=Path, help="directory of snapshots, or of one snapshot")
    parser.add_argument("file", type=Path, help=f"what to write: a name that ends in {SAFETENSORS} or {TORCH}")
    parser.add_argument("--step", type=int, help="which snapshot (default: the latest that passes its checks)")
    parser.add_argument("--job", help="the job that the snapshots must belong to")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    chosen = parser.parse_args()
    try:
        exported = export(chosen.directory, chosen.file, step=chosen.step, job_id=chosen.job, force=chosen.force)
    except (ExportError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    sys.stdout.write(json.dumps(exported) + "\n")


def export(directory: Path, file: Path, *, step: int | None, job_id: str | None, force: bool) -> dict[str, Any]:
    """Write the model's weights to ``file``, whole or not at all, and describe them. Raises ExportError or OSError."""
    validate_target(file, force=force)
    manifest, model, skipped = _select(directory, step, job_id)
    with _atomic_target(file, force=force) as temporary:
        if file.suffix == TORCH:
            torch.save(model, temporary)
        else:
            others = [name for name, item in model.items() if not isinstance(item, Tensor)]
            if others:
                raise ExportError(
                    f"{others[0]} in the model's state is a {type(model[others[0]]).__name__}, and {SAFETENSORS} files "
                    f"hold tensors only: export to a name that ends in {TORCH}"
                )
            metadata = {"format": "pt", "step": str(manifest.step), "job": manifest.job_id or ""}
            write_safetensors(temporary, model, metadata)
    return {
        "file": str(file),
        "step": manifest.step,
        "epoch": manifest.epoch,
        "job": manifest.job_id,
        "tensors": sum(isinstance(item, Tensor) for item in model.values()),
        "bytes": file.stat().st_size,
        "skipped": skipped,
    }


def validate_target(file: Path, *, force: bool) -> None:
    """Refuse, before any work, an unknown kind of file, one without a directory, or one that exists: ExportError."""
    if file.suffix not in (SAFETENSORS, TORCH):
        raise ExportError(f"{file} must end in {SAFETENSORS} or {TORCH}, which selects the format")
    if file.suffix == SAFETENSORS:
        try:
            import safetensors.torch  # noqa: F401  # now, since the snapshot may take minutes to read
        except ImportError as error:
            raise ExportError(
                f"the library safetensors is not installed in {sys.executable}: `{sys.executable} -m pip install "
                f"safetensors`, or export to a name that ends in {TORCH}"
            ) from error
    if not file.parent.is_dir():
        raise ExportError(f"{file} cannot be written: there is no directory {file.parent}")
    if file.is_dir():
        raise ExportError(f"{file} is a directory: name a file")
    if file.exists() and not force:
        raise ExportError(f"{file} exists already: --force replaces it, or choose another name")


def read_model(directory: Path, manifest: Manifest) -> dict[str, Any]:
    """Read the state dict of the model in one snapshot, whole, on the CPU; ``manifest`` is of ``verify``.

    Raises ExportError where a script has saved something else with ``Snapshots``.
    """
    try:
        state = read_state(directory / MODEL)
        model = state.get("model") if isinstance(state, dict) else None
        if not isinstance(model, dict):
            raise ExportError(f"{directory / MODEL} must hold a dict with the model's state as 'model', and does not")
        if manifest.sharded:
            model = reshard({"model": model}, {}, ShardFiles(directory, manifest.world_size))["model"]
    except UnpicklingError as error:
        raise ExportError(
            f"{directory} holds more than tensors, numbers and text, so it is not loaded: {error}"
        ) from error
    return cast("dict[str, Any]", model)


def _select(directory: Path, step: int | None, job_id: str | None) -> tuple[Manifest, dict[str, Any], list[str]]:
    """Read the latest good snapshot, or that of ``step``, and why others were skipped.

    A damaged snapshot that ``step`` requests is an error.
    """
    if not directory.is_dir():
        raise ExportError(f"there is no directory {directory}")
    if (directory / MANIFEST).exists() and directory.name.isdecimal():
        step, directory = int(directory.name), directory.parent
    snapshots = SnapshotDir(directory)
    steps = snapshots.steps()
    if not steps:
        raise ExportError(f"{directory} holds no snapshot yet: the first one comes with the first steps of training")
    if step is not None and step not in steps:
        raise ExportError(f"{directory} holds no snapshot of step {step}, only of {', '.join(map(str, steps))}")
    skipped: list[str] = []
    for each in steps if step is None else [step]:
        try:
            manifest = verify(snapshots.path(each), step=each, job_id=job_id)
            return manifest, read_model(snapshots.path(each), manifest), skipped
        except (BadSnapshotError, OSError) as error:  # a running job may delete an old one meanwhile
            skipped.append(f"the snapshot of step {each} must not be used: {error}")
    others = [other for other in steps if other != step]
    hint = f"try --step {others[0]}" if step is not None and others else "there is no other snapshot"
    raise ExportError("; ".join([*skipped, f"{hint} ({directory})"]))


@contextmanager
def _atomic_target(file: Path, *, force: bool) -> Iterator[Path]:
    """Provide a temporary file to write; it then becomes ``file``, durably, with the mode of any new file."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # safetensors makes a file that its owner alone may read
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        if force:
            temporary.replace(file)
        else:
            os.link(temporary, file)  # unlike a rename, never replaces what was created meanwhile
        fsync_directory(file.parent)
    except FileExistsError as error:
        raise ExportError(f"{file} was created meanwhile: --force replaces it") from error
    finally:
        temporary.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
