"""Every kind of error response: why a server gives it, and what the client does then.

The last part of ``type`` of a problem (RFC 9457), as in ``/problems/queue-full``, is a key of ``PROBLEM_TYPES``.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProblemType:
    """What OpenAPI lists and docs/reference/errors.md explains; ``remedy`` begins with a verb or names a command."""

    cause: str
    remedy: str


PROBLEM_TYPES: dict[str, ProblemType] = {
    "ambiguous-job": ProblemType(
        "The given beginning of an id fits several jobs.", "Give more characters of the id, or the number of the job."
    ),
    "bad-request": ProblemType(
        "The request is not valid HTTP/1.1, or its line and headers exceed 64 KiB.",
        "Use an HTTP client instead of writing to the socket; send long values in the body.",
    ),
    "beyond-end": ProblemType(
        "`offset` or `Range` starts after the end of the log.",
        "Read from the offset in `X-Next-Offset`, or use `tail`.",
    ),
    "busy": ProblemType(
        "The server has no thread, descriptor or memory left for this request, or too many of its kind wait.",
        "Retry after the seconds of `Retry-After`.",
    ),
    "damaged-snapshot": ProblemType(
        "The requested snapshot failed its checksums.", "`rekindle snapshots list JOB` lists the intact ones."
    ),
    "disk-full": ProblemType(
        "Less than 100 MB are free on the disk of the home.",
        "`rekindle disk` shows what takes the space, `rekindle prune --dry-run` what could be removed.",
    ),
    "files-changed": ProblemType(
        "Files of a download were removed or became shorter while they were read.", "Request the download again."
    ),
    "files-unresponsive": ProblemType(
        "The file system of the job does not answer, such as NFS without its server.",
        "Check the file system that the message names; retry after the seconds of `Retry-After`.",
    ),
    "foreign-origin": ProblemType(
        "A page of another site sent a request with the session cookie.",
        "Programs send `Authorization: Bearer TOKEN`; behind a reverse proxy set `public_url`.",
    ),
    "http-error": ProblemType("The web framework rejected the request.", "Follow `detail`."),
    "incomplete": ProblemType("The connection closed before the upload was complete.", "Upload the archive again."),
    "insufficient-scope": ProblemType(
        "The token's scope does not allow this.", "Ask an administrator for a token with the scope that `detail` names."
    ),
    "internal-error": ProblemType(
        "The server has a defect.", "Report it with the traceback in the server's log (standard error, or the journal)."
    ),
    "invalid-bundle": ProblemType(
        "The archive is damaged, empty, too large when unpacked, or has a path or link that leads out.",
        "Pack the directory again as tar.gz or zip; `errors` has the rule.",
    ),
    "invalid-request": ProblemType(
        "A field, parameter or body is invalid or unknown.",
        "`errors` lists field, rule, value and hint; the reference of the REST API has the limits.",
    ),
    "method-not-allowed": ProblemType(
        "The path exists, but not with this method.", "Use a method of the header `Allow`."
    ),
    "no-snapshot": ProblemType(
        "The job has no snapshot that a fault could damage.", "Inject the fault after the first snapshot."
    ),
    "no-stack": ProblemType(
        "The rank does not run, or wrote no stack in time.",
        "`rekindle show JOB` and `rekindle doctor JOB` show its state.",
    ),
    "not-found": ProblemType("No route has this path.", "`/openapi.json` lists all routes."),
    "not-owner": ProblemType(
        "The job or experiment belongs to somebody else.", "Ask its owner or an administrator to do it."
    ),
    "pinned-snapshot": ProblemType(
        "A rollback would quarantine a pinned snapshot.", "Unpin that snapshot first, or resume from a later one."
    ),
    "queue-full": ProblemType(
        "The queue has `max_queued` jobs, or those that `quotas` allow this owner.",
        "Wait until jobs have started, cancel some, or have the setting raised.",
    ),
    "removed": ProblemType(
        "This part of the log was removed, since the log exceeded `log_bytes`.",
        "Read from the next byte that `detail` names.",
    ),
    "storage-unavailable": ProblemType(
        "The database does not answer, or was removed, replaced or damaged.",
        "`GET /readyz` names its state; docs/storage.md says what to do. Retry with the same `Idempotency-Key`.",
    ),
    "too-large": ProblemType(
        "The body exceeds its limit: 10 MiB, for an archive of code `bundle_bytes`.",
        "Keep data out of the code: `--exclude PATTERN` or `.rekindleignore`.",
    ),
    "too-many-listeners": ProblemType(
        "500 clients read the event stream.", "Close pages; retry after the seconds of `Retry-After`."
    ),
    "too-many-requests": ProblemType(
        "More requests than `request_rate`, or too many wrong tokens from this address.",
        "Retry after the seconds of `Retry-After`; follow a job with the event stream instead of polling.",
    ),
    "too-slow": ProblemType("The body arrives more slowly than 16 KiB a second.", "Use a faster connection; retry."),
    "unauthorized": ProblemType(
        "The token is missing, wrong, revoked or expired.",
        "`rekindle token` prints the token of this machine's server; set `REKINDLE_TOKEN` elsewhere.",
    ),
    "unknown-attempt": ProblemType(
        "The job has no attempt of this number, or none yet.", "`rekindle show JOB` lists the attempts."
    ),
    "unknown-device": ProblemType("The machine has no slot of this name.", "`rekindle devices` lists the slots."),
    "unknown-experiment": ProblemType("No experiment has this id.", "`rekindle experiment --list` lists them."),
    "unknown-job": ProblemType(
        "No job has this id, number, name or beginning of an id, or you may not read it.",
        "`rekindle ps` lists the jobs.",
    ),
    "unknown-rank": ProblemType("The attempt has no such rank.", "`rekindle show JOB` gives the number of ranks."),
    "unknown-snapshot": ProblemType(
        "The job has no snapshot of this step.", "`rekindle snapshots list JOB` lists its snapshots."
    ),
    "unknown-token": ProblemType("No token has this id.", "`rekindle token list` lists them."),
    "unsupported-type": ProblemType(
        "The `Content-Type` is none that the route accepts.",
        "Send `application/gzip` or `application/zip` to `/bundles`.",
    ),
    "wrong-host": ProblemType(
        "The `Host` header does not name this server (protection against DNS rebinding).",
        "Use the URL that `rekindle serve` printed, or set `public_url` for a reverse proxy.",
    ),
    "wrong-state": ProblemType(
        "The state of the job does not allow this.",
        "`rekindle show JOB` shows its state; `detail` says what is needed.",
    ),
}
