"""Files to keep: one log as it is, all logs or a snapshot as a zip archive. Streamed, so memory stays flat."""

from collections.abc import Iterator

from fastapi import APIRouter, Response
from starlette.responses import StreamingResponse

from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import open_beneath
from rekindle_service.api.lookup import AttemptNumber, KnownAttempt, KnownJob, KnownRank, KnownRunDir, find_attempt
from rekindle_service.api.ranks import Stream
from rekindle_service.api.snapshots import Step, unknown_snapshot
from rekindle_service.run_readers.logs import iter_bytes, size_of
from rekindle_service.run_readers.ranks import STREAMS, rank_numbers, read_attempts
from rekindle_service.run_readers.snapshots import snapshot_files
from rekindle_service.run_readers.zip_stream import Member, zip_stream

router = APIRouter(tags=["downloads"])

_ZIP = "application/zip"


@router.get(
    "/jobs/{job_id}/ranks/{rank}/log/file",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
def download_log(
    job: KnownJob, run_dir: KnownRunDir, facts: KnownAttempt, rank: KnownRank, stream: Stream = "stdout"
) -> Response:
    """The whole of a rank's output so far, byte by byte as it was written, as a file to keep."""
    name = f"job-{job.number}-attempt-{facts.number}-rank-{rank}-{stream}.log"
    file = open_beneath(run_dir.root, run_dir.attempt(facts.number).rank(rank).log(stream))
    if file is None:
        return Response(b"", headers=_saved_as(name), media_type="application/octet-stream")
    size = size_of(file)
    headers = {**_saved_as(name), "Content-Length": str(size)}
    return StreamingResponse(iter_bytes(file, 0, size), 200, headers, "application/octet-stream")


@router.get("/jobs/{job_id}/logs.zip", response_class=Response, responses={200: {"content": {_ZIP: {}}}})
def download_logs(job: KnownJob, run_dir: KnownRunDir, attempt: AttemptNumber = None) -> Response:
    """Every log of the job, or of one attempt: of all ranks, of torchrun's agents and of the keeper."""
    chosen = read_attempts(run_dir).values() if attempt is None else [find_attempt(job, run_dir, attempt)]
    archive = zip_stream(run_dir.root, _logs(run_dir, list(chosen)), compress=True)
    return StreamingResponse(archive, 200, _saved_as(f"job-{job.number}-logs.zip"), _ZIP)


def _logs(run_dir: RunDir, attempts: list[AttemptInfo]) -> Iterator[Member]:
    yield Member("keeper.log", run_dir.keeper_log)
    for facts in attempts:
        attempt_dir = run_dir.attempt(facts.number)
        yield Member(f"attempt-{facts.number}/agent.log", attempt_dir.agent_log)
        for rank in rank_numbers(run_dir, facts):
            for stream in STREAMS:
                name = f"attempt-{facts.number}/rank-{rank}/{stream}.log"
                yield Member(name, attempt_dir.rank(rank).log(stream))


@router.get(
    "/jobs/{job_id}/snapshots/{step}/files.zip", response_class=Response, responses={200: {"content": {_ZIP: {}}}}
)
def download_snapshot(job: KnownJob, run_dir: KnownRunDir, step: Step) -> Response:
    """The folder of a snapshot: unpacked into a folder of snapshots, a training can go on from it.

    `rekindle snapshots export` gives the plain weights instead.
    """
    files = snapshot_files(run_dir.root, run_dir.snapshots, step)
    if files is None:
        raise unknown_snapshot(job, step)
    members = [Member(f"{path.parent.name}/{path.name}", path) for path in files]
    archive = zip_stream(run_dir.root, members, compress=False)
    return StreamingResponse(archive, 200, _saved_as(f"job-{job.number}-step-{step}.zip"), _ZIP)


def _saved_as(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
