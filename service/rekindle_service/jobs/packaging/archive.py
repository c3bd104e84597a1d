"""Packs a directory of code as one archive, for a server without access to this machine's disk."""

import gzip
import os
import tarfile
from pathlib import Path
from typing import IO

from rekindle_service.jobs.packaging.code_copy import CodeCopyError, CodeTree, Inventory, open_tree, scan_tree
from rekindle_service.jobs.packaging.ignore_rules import CopyOptions

_FASTEST = 1  # of gzip: code is small, and the network mostly faster than a better compression


def pack_code(directory: Path, archive: IO[bytes], *, exclude: Path, options: CopyOptions) -> Inventory:
    """Write ``directory`` as tar.gz, with the rules and limits of ``copy_code``; returns what went into it.

    The same files give the same bytes, and so the same bundle: owners and times are omitted. Raises CodeCopyError,
    and OSError of the writing.
    """
    with (
        open_tree(directory) as tree,
        gzip.GzipFile(fileobj=archive, mode="wb", compresslevel=_FASTEST, mtime=0, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w|") as tar,
    ):
        inventory = scan_tree(tree, Path(os.path.realpath(exclude)), options)
        for path in sorted(inventory.directories):
            tar.addfile(_described(path, tarfile.DIRTYPE, 0o700))
        for path, found in sorted(inventory.files.items()):
            _add_file(tar, tree, path, found)
        for path, text in sorted(inventory.links.items()):
            link = _described(path, tarfile.SYMTYPE, 0o777)
            link.linkname = text
            tar.addfile(link)
    return inventory


def _add_file(tar: tarfile.TarFile, tree: CodeTree, path: Path, found: os.stat_result) -> None:
    try:
        with tree.open(path, found) as file:
            status = os.fstat(file.fileno())
            entry = _described(path, tarfile.REGTYPE, 0o755 if status.st_mode & 0o100 else 0o644)
            entry.size = status.st_size
            tar.addfile(entry, file)
    except OSError as error:
        hint = f"{path}: {error.strerror or error}: is it being written just now?"
        raise CodeCopyError("must be readable throughout", hint) from error


def _described(path: Path, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(str(path))
    entry.type, entry.mode = kind, mode
    return entry
