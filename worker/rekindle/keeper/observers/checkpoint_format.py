"""Whether a file is a checkpoint, and a complete one: by its first and last bytes, never by its name.

Nothing is unpickled and no tensor is read. What is not recognised (a pickle, an archive of numpy) is no checkpoint
unless it is in a directory that is for nothing else.
"""

import json
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rekindle.contract.safe_open import open_regular

METADATA = ".metadata"
"""What torch.distributed.checkpoint renames into its directory when all shards are written."""

SHARD = ".distcp"
TORN = ".torn-"
"""In the name of a checkpoint that was moved away because it cannot be loaded."""

CHECKPOINT_DIRECTORY = re.compile(
    r"(?:.*[^a-z])?(?:checkpoint|ckpt|epoch|step|global_?step|iter|iteration|snapshot)[-_=]?\d+(?:[^a-z].*)?", re.I
)
"""A directory with a number that is one checkpoint: Trainer's, Accelerate's, DeepSpeed's, Megatron's."""

_ZIP, _ZIP_END = b"PK\x03\x04", b"PK\x05\x06"
_ZIP_END_SIZE = 22  # bytes: torch writes no comment after it
_TORCH_ENTRY = (b"/data.pkl", b"/version", b"/byteorder", b"/.format_version", b"/constants.pkl")
_TORCH_LEGACY = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"  # torch.serialization.MAGIC_NUMBER, pickled
_MAX_HEADER = 100 << 20  # bytes, the limit of safetensors itself
_MAX_PARSED = 4 << 20  # bytes of a header that the keeper parses


@dataclass(frozen=True, slots=True)
class Format:
    """``complete``: the file ends as its format demands, as far as that shows."""

    kind: str
    complete: bool


def recognize(path: Path) -> Format | None:
    """None for what is no checkpoint, and for what cannot be read."""
    if path.name.endswith(SHARD):
        return Format("sharded", complete=True)  # its directory shows whether it is, by METADATA
    try:
        with open_regular(path) as file:
            return _recognize(file, os.fstat(file.fileno()).st_size)
    except OSError:
        return None


def shards_complete(files: Sequence[os.DirEntry[str]]) -> bool:
    """torch.distributed.checkpoint renames its metadata into the directory after the last shard."""
    shards = [_modified(entry) for entry in files if entry.name.endswith(SHARD)]
    metadata = [_modified(entry) for entry in files if entry.name == METADATA]
    return not shards or (bool(metadata) and max(metadata) >= max(shards))


def _modified(entry: os.DirEntry[str]) -> int:
    """In ns; 0 for what is gone."""
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


def _recognize(file: BinaryIO, size: int) -> Format | None:
    head = file.read(256)
    if head.startswith(_ZIP):
        name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        return Format("torch", _ends_zip(file, size)) if name.endswith(_TORCH_ENTRY) else None
    if head.startswith(_TORCH_LEGACY):
        return Format("torch", complete=True)
    if len(head) > 9 and head[8:9] == b"{" and 2 <= (length := struct.unpack("<Q", head[:8])[0]) <= _MAX_HEADER:
        return _safetensors(file, size, length)
    return None


def _ends_zip(file: BinaryIO, size: int) -> bool:
    file.seek(max(0, size - _ZIP_END_SIZE))
    return file.read(4) == _ZIP_END


def _safetensors(file: BinaryIO, size: int, length: int) -> Format | None:
    if size < 8 + length:
        return Format("safetensors", complete=False)
    if length > _MAX_PARSED:
        return Format("safetensors", complete=True)
    file.seek(8)
    try:
        header = json.loads(file.read(length))
        tensors = [each for name, each in header.items() if name != "__metadata__"]
        end = max((int(each["data_offsets"][1]) for each in tensors), default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None
    return Format("safetensors", complete=size >= 8 + length + end)
