"""From the JSON of a submit to what the submission takes, defaults filled in."""

import sys
from pathlib import Path, PurePosixPath

from rekindle.contract.job import JobSpec, TargetKind
from rekindle_service.api.request_schemas import LONGEST_NAME, Code, JobCreate, JobOptions
from rekindle_service.jobs.submission import CodeOrigin, Submission


def submission_of(body: JobCreate) -> Submission:
    """Pure but for the default interpreter, which is the server's own."""
    kind, target = _target(body)
    spec = JobSpec.from_json(
        {
            **body.model_dump(include=set(JobOptions.model_fields)),
            "name": body.name or default_name(kind, target),
            "kind": kind,
            "target": target,
            "python": body.python or sys.executable,
            "min_ranks": body.ranks.min,
            "max_ranks": body.ranks.max,
        }
    )
    code = None if body.code is None or body.code.path is None else Path(body.code.path)
    return Submission(spec, code, _origin(body.code))


def _origin(code: Code | None) -> CodeOrigin | None:
    if code is None or code.path is not None:
        return None
    return CodeOrigin(bundle=code.bundle, git=code.git, ref=code.ref)


def _target(body: JobCreate) -> tuple[TargetKind, str]:
    """Precondition: exactly one is given, which ``JobCreate`` has made sure of."""
    return next((kind, target) for kind in TargetKind if (target := getattr(body, kind)) is not None)


def default_name(kind: TargetKind, target: str) -> str:
    """``train`` for ``/code/train.py``; a module's or recipe's own name."""
    name = PurePosixPath(target).stem if kind is TargetKind.SCRIPT else target
    return name[:LONGEST_NAME] if name.isprintable() and name.strip() else "job"
