"""A directory at a URL with the copies of one job. The only module that loads fsspec.

``parts/<sha256>``  at most 16 MiB of a file, named by its content
``index-<n>``       JSON with its own checksum, written after all parts that it names; the valid one of the highest n
                    says what is copied, so that nothing else can look complete. No clock decides anything.
"""

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from rekindle.contract.files import atomic_write
from rekindle.contract.run_dir.json_records import Count, JsonRecord, Line, structure

PART = 16 << 20  # bytes
CODE = "code.tar.gz"  # in an index, the code that was submitted
_FORMAT = 1
_MAX_INDEX = 256 << 20  # bytes
_SSH_SECONDS = 30.0  # for which an SSH server may keep silent at the start
_DIGEST = re.compile(r"[0-9a-f]{64}")
_INDEX = re.compile(r"index-(\d{1,15})")


class MirrorError(Exception):
    """The remote side cannot be used as it is; the message is for people."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it was copied: the digests of its parts, in order."""

    bytes: Count
    parts: list[Line]

    def __post_init__(self) -> None:
        if len(self.parts) != -(-self.bytes // PART) or not all(map(_DIGEST.fullmatch, self.parts)):
            raise ValueError("these are not the parts of a file of this size")

    def is_in(self, sizes: Mapping[str, int]) -> bool:
        """Whether every part is there with its size; ``sizes``: by name."""
        return all(sizes.get(part) == min(PART, self.bytes - i * PART) for i, part in enumerate(self.parts))


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    step: Count
    manifest: str  # text of its ``manifest.json``
    files: dict[str, StoredFile]


@dataclass(frozen=True, slots=True)
class Index(JsonRecord):
    """All that is copied of a job. ``snapshots``: the one to continue from first."""

    job_id: Line
    number: Count
    spec: dict[str, Any]  # of the job, without values of variables
    snapshots: list[StoredSnapshot] = field(default_factory=list)
    files: dict[str, StoredFile] = field(default_factory=dict)  # by path in the run directory, and ``CODE``

    @property
    def steps(self) -> list[int]:
        return [each.step for each in self.snapshots]

    def parts(self) -> set[str]:
        files = [*self.files.values(), *(file for each in self.snapshots for file in each.files.values())]
        return {part for file in files for part in file.parts}

    def only_with(self, sizes: Mapping[str, int]) -> Self:
        """Without what lacks a part."""
        kept = [each for each in self.snapshots if all(file.is_in(sizes) for file in each.files.values())]
        return replace(
            self, snapshots=kept, files={name: file for name, file in self.files.items() if file.is_in(sizes)}
        )

    def encoded(self) -> bytes:
        fields = {"format": _FORMAT, **asdict(self)}
        return json.dumps({**fields, "sha256": _checksum(fields)}).encode()

    @classmethod
    def parse(cls, data: bytes) -> Self | None:
        """None for one that is torn or of another format."""
        with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            fields = dict(json.loads(data))
            if fields.pop("sha256") == _checksum(fields) and fields["format"] == _FORMAT:
                return structure(cls, fields)
        return None


def _checksum(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


class Remote:
    """One writer at a time. Every method raises what the back end raises, OSError mostly."""

    def __init__(self, url: str, job_id: str | None = None) -> None:
        """``url``: an existing directory. ``job_id``: of the job whose copies are below. Raises MirrorError."""
        from fsspec.core import url_to_fs  # of an extra

        self._fs, root = url_to_fs(url, **_ssh_options(url))
        self._is_path = "file" in self._fs.protocol
        self._has_directories = self._is_path or "sftp" in self._fs.protocol
        self.root = root.rstrip("/")
        if self._has_directories and not self._fs.isdir(self.root):  # perhaps a disk that is not mounted
            raise MirrorError(f"{url} is no directory: make it first")
        if job_id is not None:
            self.root = f"{self.root}/{job_id}"

    def prepare(self) -> None:
        """Make the directories, where there are such."""
        if self._has_directories:
            self._fs.makedirs(f"{self.root}/parts", exist_ok=True)

    def jobs(self) -> list[str]:
        """The names of the directories that may have copies of a job."""
        return sorted(self._list(self.root))

    def sizes(self) -> dict[str, int]:
        """Bytes of each part by name; another name is a left-over."""
        return self._list(f"{self.root}/parts")

    def _list(self, directory: str) -> dict[str, int]:
        self._fs.invalidate_cache()
        found: list[dict[str, Any]] = []
        with suppress(FileNotFoundError):
            found = self._fs.ls(directory, detail=True)
        return {each["name"].rstrip("/").rpartition("/")[2]: each["size"] or 0 for each in found}

    def put(self, digest: str, data: bytes, listed: int | None) -> None:
        """Store a part, unless one of its size (``listed``) proves to be it. Raises MirrorError if it is not stored."""
        path = f"{self.root}/parts/{digest}"
        if listed != len(data) or not self._is_stored(path, data):
            self._write(path, data)

    def _write(self, path: str, data: bytes) -> None:
        if self._is_path:
            atomic_write(Path(path), data)
        elif self._has_directories:  # fsspec waits for each 32 KiB
            self._fs.ftp.putfo(BytesIO(data), path)
        else:
            self._fs.pipe_file(path, data)
        if not self._is_stored(path, data):
            raise MirrorError(f"{path} is not what was sent there")

    def _is_stored(self, path: str, data: bytes) -> bool:
        """By the MD5 that Google and S3 compute of what is sent at once, S3 without a key; else it is read back."""
        info = self._fs.info(path)
        if stated := info.get("md5Hash") or str(info.get("ETag") or "").strip('"'):
            md5 = hashlib.md5(data, usedforsecurity=False)
            if stated in (md5.hexdigest(), b64encode(md5.digest()).decode()):
                return True
        return self._read(path) == data

    def _read(self, path: str) -> bytes:
        if self._is_path or not self._has_directories:
            return bytes(self._fs.cat_file(path))
        self._fs.ftp.getfo(path, buffer := BytesIO())
        return buffer.getvalue()

    def get(self, digest: str) -> bytes:
        """Raises MirrorError for a damaged part."""
        data = self._read(f"{self.root}/parts/{digest}")
        if hashlib.sha256(data).hexdigest() != digest:
            raise MirrorError(f"the part {digest} at {self.root} is damaged")
        return data

    def remove_part(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(f"{self.root}/parts/{name}")

    def read_index(self) -> Index | None:
        """The latest valid index, without what lacks a part; None where there is none."""
        for number in sorted(self._indexes(), reverse=True):
            path = f"{self.root}/index-{number}"
            if self._fs.info(path)["size"] <= _MAX_INDEX and (index := Index.parse(self._read(path))):
                return index.only_with(self.sizes())
        return None

    def write_index(self, index: Index) -> None:
        """Publish it with the next number; the earlier ones go once it is read back."""
        earlier = self._indexes()
        self._write(f"{self.root}/index-{max(earlier, default=0) + 1}", index.encoded())
        for number in earlier:
            self._fs.rm_file(f"{self.root}/index-{number}")

    def _indexes(self) -> list[int]:
        return [int(found[1]) for name in self._list(self.root) if (found := _INDEX.fullmatch(name))]


def _ssh_options(url: str) -> dict[str, Any]:
    """fsspec would accept the key of any host: only those of ``known_hosts`` are."""
    if urlsplit(url).scheme != "sftp":
        return {}
    from paramiko import HostKeys, MissingHostKeyPolicy, PKey, SSHClient, SSHException

    class KnownHosts(MissingHostKeyPolicy):  # type: ignore[misc]  # of an extra
        def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:
            known = HostKeys()
            for path in (Path.home() / ".ssh/known_hosts", Path("/etc/ssh/ssh_known_hosts")):
                with suppress(OSError):
                    known.load(str(path))
            if not known.check(hostname, key):
                raise SSHException(f"the key of {hostname} is not in known_hosts: connect once with sftp as this user")

    limits = dict.fromkeys(("timeout", "banner_timeout", "auth_timeout"), _SSH_SECONDS)
    return {"host_key_policy": KnownHosts(), **limits}
