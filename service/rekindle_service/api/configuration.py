"""What a job runs with beyond its request: code, packages, machine; and how its code differs from another job's."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query

from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import read_small
from rekindle_service.api.lookup import KnownJob, KnownRunDir, find_job
from rekindle_service.api.pieces import WantedPiece
from rekindle_service.api.problems import ProblemError
from rekindle_service.api.schemas import CodePublic, ConfigurationPublic, FileDifferencePublic, Page, speakable
from rekindle_service.api.services import Serving
from rekindle_service.jobs.packaging.code_diff import differences, read_manifest

router = APIRouter(tags=["configuration"])


@router.get("/jobs/{job_id}/configuration")
def read_configuration(run_dir: KnownRunDir) -> ConfigurationPublic:
    """The working folder, the code by its digest, the packages and machine of the latest run; null: not on record."""
    manifest = read_manifest(run_dir)
    code = None
    if manifest is not None:
        code = CodePublic(digest=manifest.digest, files=len(manifest.files), bytes=manifest.bytes)
    return ConfigurationPublic(folder=str(run_dir.code), code=code, surroundings=_surroundings(run_dir))


@router.get("/jobs/{job_id}/code/differences")
def compare_code(
    services: Serving,
    job: KnownJob,
    run_dir: KnownRunDir,
    piece: WantedPiece,
    other: Annotated[str, Query(max_length=64, description="Id of the job to compare with")],
) -> Page[FileDifferencePublic]:
    """The files in which the code of this job differs from that of another, with the lines of the changed ones."""
    found = differences(services.home.run_dir(find_job(services, other).id), run_dir)
    if found is None:
        detail = f"the code of job {job.id} or {other} is not on record: a recipe has none, nor has a very old job"
        raise ProblemError(409, "no-code", detail)
    told, following = piece.of(found)
    return Page(items=[FileDifferencePublic.model_validate(each) for each in told], next=following)


def _surroundings(run_dir: RunDir) -> dict[str, Any] | None:
    data = read_small(run_dir.root, run_dir.surroundings)
    try:
        value = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    return speakable(value) if isinstance(value, dict) else None
