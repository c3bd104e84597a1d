"""What the keeper adds to its own environment before anything else: a directory for temporary files, and secrets."""

import json
import os
import stat
from contextlib import suppress
from pathlib import Path

from rekindle.contract.environment import ENV_FILES, PRIVATE_TMP

_MAX_BYTES = 1 << 16  # of the value of a variable


class SecretError(Exception):
    """The file with the value of a variable cannot be read; the message names both."""


def read_secrets() -> None:
    """Set the variables whose values are in files; with the rights of the job. Raises SecretError."""
    for name, path in json.loads(os.environ.pop(ENV_FILES, "{}")).items():
        os.environ[name] = _content(name, path)


def _content(name: str, path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError("it is not a regular file")
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise SecretError(f"env.{name}: {path} cannot be read: {error.strerror or error}") from error
    if len(data) > _MAX_BYTES or b"\0" in data:
        raise SecretError(f"env.{name}: {path} must have at most {_MAX_BYTES} bytes, none of them NUL")
    return os.fsdecode(data.removesuffix(b"\n").removesuffix(b"\r"))


def make_private_tmp() -> Path | None:
    """The directory that TMPDIR names, if it is the job's own; it may have files of an earlier keeper."""
    path = os.environ.pop(PRIVATE_TMP, None)
    return Path(path) if path is not None and _make(Path(path)) else None


def _make(directory: Path) -> bool:
    """False, and TMPDIR is that of the machine, where another user has taken the name, or nothing can be made."""
    with suppress(OSError):
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
            return True
    os.environ.pop("TMPDIR", None)
    return False
