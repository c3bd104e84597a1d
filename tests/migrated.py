"""A database with all tables, made once in a process and copied wherever a test needs one."""

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from rekindle_service.store import Store


def provide_database(path: Path) -> Path:
    """Put an empty database of today's version at ``path``, unless there is one; opening it migrates nothing."""
    if not path.exists():
        shutil.copyfile(_template(), path)
        path.chmod(0o600)
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid)  # a server may run as another user than the tests
    return path


@cache
def _template() -> Path:
    root = Path(tempfile.mkdtemp(prefix="rekindle-template-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    store = Store(root / "rekindle.db")
    store.migrate()
    store.close()  # the write-ahead log becomes part of the file
    return store.path
