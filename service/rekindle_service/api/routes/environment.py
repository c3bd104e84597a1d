"""What a job runs with beyond its request: code, packages, machine; and how its code differs from another job's."""

from typing import Annotated

from fastapi import APIRouter, Query

from rekindle.contract.files import read_json
from rekindle_service.api.dependencies import AppStateDep, JobDep, RunDirDep, readable_job
from rekindle_service.api.pagination import PageParamsDep, paginate
from rekindle_service.api.permissions import IdentityDep
from rekindle_service.api.problem_details import ProblemError
from rekindle_service.jobs.packaging.code_manifest import differences, read_manifest
from rekindle_service.schemas.attempt_json import CodePublic, ConfigurationPublic, FileDifferencePublic
from rekindle_service.schemas.fields import Page

router = APIRouter(tags=["environment"])

_MAX_ENVIRONMENT = 1 << 20  # bytes


@router.get("/jobs/{job_id}/configuration")
def read_configuration(run_dir: RunDirDep) -> ConfigurationPublic:
    """Get the working directory, the digest of the code, and the packages and machine of the latest run."""
    manifest = read_manifest(run_dir)
    code = None
    if manifest is not None:
        code = CodePublic(digest=manifest.digest, files=len(manifest.files), bytes=manifest.bytes)
    environment = read_json(run_dir.surroundings, root=run_dir.root, max_bytes=_MAX_ENVIRONMENT)
    environment = environment if isinstance(environment, dict) else None
    return ConfigurationPublic(directory=str(run_dir.code), code=code, environment=environment)


@router.get("/jobs/{job_id}/code/differences")
def compare_code(
    state: AppStateDep,
    identity: IdentityDep,
    job: JobDep,
    run_dir: RunDirDep,
    params: PageParamsDep,
    other: Annotated[str, Query(max_length=64, description="Id of the job to compare with")],
) -> Page[FileDifferencePublic]:
    """List the files of a job's code that differ from those of another job, with the changed lines."""
    found = differences(state.home.run_dir(readable_job(state, identity, other).id), run_dir)
    if found is None:
        detail = f"the code of job {job.id} or {other} was not recorded: recipes and very old jobs have no code"
        raise ProblemError(409, "no-code", detail)
    return paginate(found, params).map(FileDifferencePublic.model_validate)
