"""The keeper's code in the home, which all nodes see: they need Python and torch, but no installation of rekindle."""

import hashlib
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from rekindle.contract.files import fsync_directory
from rekindle_service.config.home import Home

_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc")


def prepare_worker_copy(home: Home) -> Path:
    """The directory for PYTHONPATH. Each version has its own: running keepers keep theirs. Raises OSError."""
    spec = find_spec("rekindle")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("the package rekindle is not installed together with the service")
    package = Path(spec.submodule_search_locations[0])
    target = home.cluster_worker / _digest(package)
    if target.exists():
        return target
    home.cluster_worker.mkdir(mode=0o755, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=home.cluster_worker, prefix=".new-"))
    try:
        shutil.copytree(package, new / "rekindle", ignore=_IGNORED)
        new.chmod(0o755)
        new.rename(target)
        fsync_directory(home.cluster_worker)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return target


def _digest(package: Path) -> str:
    """Of names and contents."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
            digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
