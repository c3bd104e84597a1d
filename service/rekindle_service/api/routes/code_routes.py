"""What jobs run: recipes, uploaded bundles, and the code, packages and machine of a job."""

import time
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from rekindle.contract.files import read_json
from rekindle.recipes.catalog import RECIPES, RecipeOption
from rekindle_service.api.auth import IdentityDep
from rekindle_service.api.dependencies import AppStateDep, RunDirDep
from rekindle_service.api.pagination import PageParamsDep, paginate
from rekindle_service.api.problems import PROBLEM_CONTENT, ApiError
from rekindle_service.api.request_body import content_length
from rekindle_service.api.worker_pools import UPLOADS
from rekindle_service.jobs.packaging.code_manifest import read_manifest
from rekindle_service.jobs.packaging.code_sources import Bundles, Upload
from rekindle_service.jobs.packaging.unpack import UnpackingError
from rekindle_service.jobs.submitter import storage_error
from rekindle_service.schemas.attempt_json import Bundle, CodePublic, ConfigurationPublic
from rekindle_service.schemas.fields import ApiModel, Page
from rekindle_service.submission import FieldError

router = APIRouter()

BUNDLES_PATH = "/bundles"

_KINDS = ("gzip", "zip", "octet-stream", "x-gzip", "x-tar+gzip", "x-compressed-tar", "x-zip", "x-zip-compressed")
_TYPES = tuple(f"application/{kind}" for kind in _KINDS)
"""Accepted content types. The format is detected by the first bytes, so a body without a type is accepted, too."""

_DOCUMENTED_TYPES = _TYPES[:3]
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": dict.fromkeys(_DOCUMENTED_TYPES, _BINARY)}}
_MAX_ENVIRONMENT = 1 << 20  # bytes


@router.post(
    BUNDLES_PATH,
    tags=["bundles"],
    status_code=201,
    openapi_extra=_BODY,
    responses={
        200: {"model": Bundle, "description": "The archive was uploaded before"},
        413: {
            "description": "The archive exceeds the setting `bundle_bytes`, 200 MB by default",
            "content": PROBLEM_CONTENT,
        },
        415: {"description": "The content type is neither gzip nor zip", "content": PROBLEM_CONTENT},
    },
)
async def upload_bundle(state: AppStateDep, identity: IdentityDep, request: Request, response: Response) -> Bundle:
    """Upload a code archive: a tar.gz or zip as the body, sent as `application/gzip` or `application/zip`.

    It is validated and unpacked at once, whole or not at all; the same archive gets the same id.
    """
    _check_headers(request.headers, state.max_bundle_bytes)
    bundles = Bundles(state.home)
    try:
        with bundles.upload() as upload:
            await _receive(request, upload, state.max_bundle_bytes)
            is_new = await UPLOADS.run(bundles.commit, upload)
            await UPLOADS.run(state.store.access.add_upload, upload.id, identity.person, time.time())
    except UnpackingError as error:
        errors = [FieldError("body", error.rule, None, error.hint)]
        raise ApiError(422, "invalid-bundle", f"the archive {error}", errors=errors) from error
    except ClientDisconnect as error:
        raise ApiError(400, "incomplete", "the connection closed before the archive was complete") from error
    except OSError as error:
        raise storage_error(state.home.bundles, error) from error
    response.status_code = 201 if is_new else 200
    return Bundle(id=upload.id, bytes=upload.size)


def _check_headers(headers: Mapping[str, str], max_bytes: int) -> None:
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type and content_type not in _TYPES:
        detail = f"Content-Type must be one of {', '.join(_TYPES)}, not {content_type[:100]}"
        raise ApiError(415, "unsupported-type", detail)
    if content_length(headers.get("content-length")) > max_bytes:
        raise _too_large(max_bytes)


async def _receive(request: Request, upload: Upload, max_bytes: int) -> None:
    async for chunk in request.stream():
        if upload.size + len(chunk) > max_bytes:
            raise _too_large(max_bytes)
        if chunk:
            await run_in_threadpool(upload.write, chunk)


def _too_large(max_bytes: int) -> ApiError:
    detail = f"the bundle exceeds {max_bytes / 1e6:.0f} MB (setting bundle_bytes): keep data outside the code"
    return ApiError(413, "too-large", detail)


@router.get("/jobs/{job_id}/configuration", tags=["environment"])
def read_configuration(run_dir: RunDirDep) -> ConfigurationPublic:
    """Get the working directory, the digest of the code, and the packages and machine of the latest run."""
    manifest = read_manifest(run_dir)
    code = None
    if manifest is not None:
        code = CodePublic(digest=manifest.digest, files=len(manifest.files), bytes=manifest.bytes)
    environment = read_json(run_dir.surroundings, root=run_dir.root, max_bytes=_MAX_ENVIRONMENT)
    environment = environment if isinstance(environment, dict) else None
    return ConfigurationPublic(directory=str(run_dir.code), code=code, environment=environment)


class RecipePublic(ApiModel):
    """A complete training that comes with rekindle."""

    name: str = Field(examples=["ddp"])
    """Name, for `recipe` of a job."""
    title: str
    """What it trains and how, in a few words."""
    options: list[RecipeOption]
    """Options, for `args` of a job."""


@router.get("/recipes", tags=["recipes"])
def list_recipes(params: PageParamsDep) -> Page[RecipePublic]:
    """List the recipes that a job can run, with their options."""
    return paginate(list(RECIPES.values()), params).map(RecipePublic.model_validate)
