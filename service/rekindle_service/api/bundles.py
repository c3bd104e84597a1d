"""Bundles: code that is uploaded once and then submitted by its id, from a machine that shares no disk with us."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from rekindle_service.api.problems import MEDIA_TYPE, ProblemError
from rekindle_service.api.services import Services, Serving
from rekindle_service.jobs.packaging.bundles import Bundles, Upload
from rekindle_service.jobs.packaging.unpack import UnpackingError
from rekindle_service.jobs.submitter import storage_error

router = APIRouter(tags=["bundles"])

PATH = "/bundles"

_TYPES = (
    "application/gzip",
    "application/zip",
    "application/octet-stream",
    "application/x-gzip",
    "application/x-tar+gzip",
    "application/x-compressed-tar",
    "application/x-zip",
    "application/x-zip-compressed",
)
"""What an archive may be sent as. What it is, its first bytes tell: a body that says nothing of itself will do, too."""

_SHOWN = ("application/gzip", "application/zip", "application/octet-stream")
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": dict.fromkeys(_SHOWN, _BINARY)}}
_PROBLEM = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


class Bundle(BaseModel):
    """``id`` goes into ``code.bundle`` of a job."""

    id: str = Field(pattern="^sha256:[0-9a-f]{64}$", examples=["sha256:" + "0" * 64])
    bytes: int = Field(description="Size of the archive")


@router.post(
    PATH,
    status_code=201,
    openapi_extra=_BODY,
    responses={
        200: {"model": Bundle, "description": "The same archive was here already"},
        415: {"description": "The body is sent as neither gzip nor zip", **_PROBLEM},
    },
)
async def upload_bundle(services: Serving, request: Request, response: Response) -> Bundle:
    """Upload a code archive: a tar.gz or zip as the body, sent as `application/gzip` or `application/zip`.

    It is checked and unpacked at once, whole or not at all; the same archive has the same id.
    """
    _check_headers(request.headers, services.most_bundle_bytes)
    bundles = Bundles(services.home)
    try:
        with bundles.upload() as upload:
            await _receive(request, upload, services)
            is_new = await run_in_threadpool(bundles.commit, upload)
    except UnpackingError as error:
        errors = [{"field": "body", "rule": error.rule, "value": None, "hint": error.hint}]
        raise ProblemError(422, "invalid-bundle", f"the archive {error}", errors=errors) from error
    except ClientDisconnect as error:
        raise ProblemError(400, "incomplete", "the connection ended before the archive was whole") from error
    except OSError as error:
        raise storage_error(services.home.bundles, error) from error
    response.status_code = 201 if is_new else 200
    return Bundle(id=upload.id, bytes=upload.size)


def _check_headers(headers: Mapping[str, str], most: int) -> None:
    sent_as = headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent_as and sent_as not in _TYPES:
        detail = f"Content-Type must be one of {', '.join(_TYPES)}, not {sent_as[:100]}"
        raise ProblemError(415, "unsupported-type", detail)
    told = headers.get("content-length", "0")
    if told.isdecimal() and len(told) < 20 and int(told) > most:
        raise _too_large(most)


async def _receive(request: Request, upload: Upload, services: Services) -> None:
    async for chunk in request.stream():
        if upload.size + len(chunk) > services.most_bundle_bytes:
            raise _too_large(services.most_bundle_bytes)
        if chunk:
            await run_in_threadpool(upload.write, chunk)


def _too_large(most: int) -> ProblemError:
    detail = f"a bundle has at most {most / 1e6:.0f} MB (setting bundle_bytes): keep data outside the code"
    return ProblemError(413, "too-large", detail)
