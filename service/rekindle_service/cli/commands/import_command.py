"""`rekindle import`: continue a job on this machine from its off-box copies, none of which is trusted."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from typer import Option

from rekindle.contract.files import atomic_write, fsync_directory
from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import job_options
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.snapshot_dir import MANIFEST, BadSnapshotError, Manifest, step_name
from rekindle_service.cli import formatting
from rekindle_service.cli.context import connect, settings_of
from rekindle_service.cli.job_interpreter import interpreter
from rekindle_service.cli.job_request import environment
from rekindle_service.cli.layout import Table
from rekindle_service.cli.terminal import OutputOption, note, out, print_answer, print_job, working
from rekindle_service.client import Client, Job, ProblemError, is_local
from rekindle_service.config.home import Home, is_job_id
from rekindle_service.mirror.remote import CODE, Index, MirrorError, Remote, StoredFile, StoredSnapshot
from rekindle_service.submission import mirror_problem, without_password

_COLUMNS = ("JOB", "NUMBER", "NAME", "STEPS")
_LOCAL = {"name", "env", "python", "ranks", "nodes", "slurm", "hold", "device", "after", "after_any"}
_NOT_KEPT = {*_LOCAL, "continue_from", "continue_step", "exclude", "gitignore", "keep_links"}  # as they are
_URL_HELP = "The --mirror of the job, or its directory there."
_PYTHON_HELP = "Interpreter. (default: as recorded, if it exists)"


def import_job(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help=_URL_HELP)],
    step: Annotated[int | None, Option(min=0, help="Step of the snapshot. (default: the latest)")] = None,
    env: Annotated[
        list[str] | None, Option(metavar="K[=V]", help="Variable of the job: values are not copied. Repeatable.")
    ] = None,
    python: Annotated[str | None, Option(metavar="PATH", parser=interpreter, help=_PYTHON_HELP)] = None,
    output: OutputOption = "table",
) -> None:
    """Continue a job on this machine from its off-box copies.

    Makes a new job with the code, arguments and options of the original, which begins at the copied snapshot. Where the
    URL has copies of several jobs, they are listed. Run it on the machine of the server, as its user.
    """
    settings = settings_of(context)
    if not is_local(settings):
        raise typer.BadParameter("copies are imported on the machine of the server, as its user")
    if (problem := mirror_problem(url)) is not None:
        raise typer.BadParameter(f"{without_password(url)}: {problem}")
    with _reading(url):
        found = _find(url)
    if len(found) > 1:
        rows = [{"job": i.job_id, "number": i.number, "name": i.spec.get("name"), "steps": i.steps} for _, i in found]
        if not print_answer(output, rows, [row["job"] for row in rows]):
            out().print(Table(_COLUMNS, ([str(row[name.lower()]) for name in _COLUMNS] for row in rows)))
            note("Nothing was imported: add /JOB to the URL.")
        return
    [(remote, index)] = found
    with _reading(url):
        spec = JobSpec.from_json(index.spec)
    snapshot = next((each for each in index.snapshots if step in (None, each.step)), None)
    if snapshot is None and step is not None:
        raise typer.BadParameter(f"--step {step}: there are copies of the steps {index.steps or '(none)'}")
    variables = environment(env or [], os.environ)
    if lacking := sorted(set(spec.env) - set(variables)):
        raise typer.BadParameter(f"the values of variables are not copied: pass --env for {', '.join(lacking)}")
    fields = {**_request(spec), "env": {**variables, **spec.env_from}, "hold": True}
    if (chosen := python or (spec.python if Path(spec.python).exists() else None)) is not None:
        fields["python"] = chosen
    home = settings.home_dir
    with connect(context) as client, TemporaryDirectory(prefix=".import-", dir=home.root) as scratch:
        with _reading(url), working(f"Downloading {index.job_id}"):
            download(remote, index, snapshot, Path(scratch))
        job = _continue(client, fields, Path(scratch), home)
    where = "from its beginning" if snapshot is None else f"from the snapshot of step {snapshot.step}"
    print_job(job, output, f"{job['name']} is job {job['number']}: it continues job {index.job_id} {where}")


@contextmanager
def _reading(url: str) -> Iterator[None]:
    """Turn whatever a back end raises into one sentence."""
    try:
        yield
    except Exception as error:
        detail = f"{url} cannot be read: {error or type(error).__name__}"
        raise ProblemError({"title": "Nothing imported", "detail": detail}) from error


def _find(url: str) -> list[tuple[Remote, Index]]:
    """The copies at ``url``. Raises MirrorError where there are none."""
    remote = Remote(url)
    if (own := remote.read_index()) is not None:
        return [(remote, own)]
    below = (Remote(url, name) for name in remote.jobs() if is_job_id(name))
    found = [(each, index) for each in below if (index := each.read_index()) is not None]
    if not found:
        raise MirrorError("there are no complete copies of a job")
    return found


def download(remote: Remote, index: Index, snapshot: StoredSnapshot | None, target: Path) -> None:
    """Verify everything, and write it to ``snapshot``, ``code.tar.gz``, and ``code`` for the script's own files.

    Raises MirrorError and BadSnapshotError.
    """
    wanted = {name: file for name, file in index.files.items() if name == CODE or name.startswith("code/")}
    needed = sum(each.bytes for each in [*wanted.values(), *(snapshot.files.values() if snapshot else ())])
    if needed > (free := shutil.disk_usage(target).free):
        raise MirrorError(f"it takes {formatting.size(needed)}, and {target.parent} has {formatting.size(free)} free")
    for name, file in wanted.items():
        if ".." in PurePosixPath(name).parts or "\0" in name:
            raise MirrorError(f"the name {name!r} leads out of the job")
        _fetch(remote, file, target / name)
    if snapshot is not None:
        manifest = Manifest.parse(snapshot.manifest.encode())
        if manifest.step != snapshot.step or manifest.files.keys() != snapshot.files.keys():
            raise BadSnapshotError("the manifest is of another snapshot")
        for name, record in manifest.files.items():
            if _fetch(remote, snapshot.files[name], target / "snapshot" / name) != record.sha256:
                raise BadSnapshotError(f"{name} of step {manifest.step} fails its checksum")
        atomic_write(target / "snapshot" / MANIFEST, manifest.encoded())


def _fetch(remote: Remote, file: StoredFile, target: Path) -> str:
    """Write the file, and return its digest."""
    target.parent.mkdir(parents=True, exist_ok=True)
    whole = hashlib.sha256()
    with target.open("xb") as writer:
        for data in map(remote.get, file.parts):
            whole.update(data)
            writer.write(data)
        writer.flush()
        os.fsync(writer.fileno())
    return whole.hexdigest()


def _request(spec: JobSpec) -> dict[str, Any]:
    """The request that makes such a job here; of its devices only the kind."""
    stored = spec.to_json()
    fields: dict[str, Any] = {"name": spec.name, spec.kind: spec.target, "device": spec.device_kind}
    fields["ranks"] = {"min": spec.min_ranks, "max": spec.max_ranks}
    if spec.slurm is not None:
        fields |= {"slurm": stored["slurm"], "nodes": {"min": spec.min_nodes, "max": spec.nodes}}
    for each in job_options():
        section = stored[each.section] if each.section else stored
        if each.section != "slurm" and each.name not in _NOT_KEPT:
            (fields.setdefault(each.section, {}) if each.section else fields)[each.name] = section[each.name]
    return fields


def _continue(client: Client, fields: dict[str, Any], source: Path, home: Home) -> Job:
    """Submit the job on hold, give it the files, and release it: a kill in between leaves it on hold."""
    if (source / CODE).exists():
        with (source / CODE).open("rb") as archive:
            fields["code"] = {"bundle": client.upload_bundle(archive)}
    job = client.submit(fields)
    try:
        _place(source, home.run_dir(job["id"]))
    except BaseException:
        client.cancel(job["id"])
        raise
    return client.resume(job["id"])


def _place(source: Path, run_dir: RunDir) -> None:
    """Move the files into the run directory of a job that has not started, whose user gets them."""
    if (snapshot := source / "snapshot").exists():
        manifest = replace(Manifest.parse((snapshot / MANIFEST).read_bytes()), job_id=run_dir.job_id)
        atomic_write(snapshot / MANIFEST, manifest.encoded())
        (source / "snapshots").mkdir(mode=0o700)
        snapshot.rename(source / "snapshots" / step_name(manifest.step))
    owner = run_dir.root.stat()
    for name in ("code", "snapshots"):
        for path in sorted([source / name, *(source / name).rglob("*")] if (source / name).exists() else []):
            target = run_dir.root / path.relative_to(source)
            if path.is_dir():
                target.mkdir(mode=0o700, exist_ok=True)
            else:
                path.replace(target)
            if os.geteuid() == 0 != owner.st_uid:
                os.chown(target, owner.st_uid, owner.st_gid, follow_symlinks=False)
            fsync_directory(target.parent)
