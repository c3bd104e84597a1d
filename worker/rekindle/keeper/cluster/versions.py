"""What must be the same on all nodes of a job: another torch sums in another order, or speaks another protocol."""

import hashlib
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import rekindle
from rekindle.keeper.cluster.messages import Versions


def own_versions() -> Versions:
    """Of this interpreter. Raises ImportError where it has no torch."""
    return Versions(source_digest(Path(rekindle.__file__).parent), version("torch"), platform.python_version())


def source_digest(package: Path) -> str:
    """Of all modules below ``package``: the worker side is a directory on the path, and has no version of its own."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:10]


def difference(by_host: Mapping[str, Versions]) -> str | None:
    """The sentence about the first two nodes that differ; None where all are the same."""
    hosts = list(by_host)
    for host in hosts[1:]:
        if by_host[host] != by_host[hosts[0]]:
            return (
                f"The nodes have different versions: {hosts[0]} has {by_host[hosts[0]]}, {host} has {by_host[host]}. "
                "Install the same on all nodes, or name a Python on the shared file system with --python."
            )
    return None
