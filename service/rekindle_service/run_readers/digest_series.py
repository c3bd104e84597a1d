"""The digests of a job: what its training was after a step, rank by rank.

A file may have hundreds of megabytes: the positions of its records are held, and digests are read on demand.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import BinaryIO, NamedTuple

from rekindle.contract.files import MAX_LINE, complete_lines, parse_json
from rekindle.contract.run_dir.attempt_history import AttemptSummary
from rekindle.contract.run_dir.digest_records import DigestNames, StepDigest, TensorKind, unpack
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import file_version
from rekindle_service.run_readers.log_files import open_or_empty, size_of
from rekindle_service.run_readers.rank_rows import RANK_ZERO, rank_numbers

_MAX_FILE_BYTES = 512 << 20  # of a file that are read: some seconds; later steps have no digests
_MAX_BYTES = 1 << 30  # of all files of a job
_MAX_FILE_RECORDS = 100_000
_MAX_RECORDS = 2_000_000  # of a job, of 48 bytes each
_CACHED = 128  # files
_NO_NAMES = -1

Tensors = dict[TensorKind, dict[str, int]]


class DigestedStep(NamedTuple):
    """A step with digests, and the attempt that has trained it."""

    step: int
    attempt: int
    epoch: int


@dataclass(frozen=True, slots=True)
class RankDigest:
    """The record of one rank, and the digests of its tensors by name."""

    record: StepDigest
    tensors: Tensors


class _Position(NamedTuple):
    """Bytes of a record, and of the names that it refers to; hashes of all but its logged values, and of a part."""

    state_hash: int
    shared_hash: int
    begin: int
    names: int


class _Positions:
    """Where the records of one file are, by ascending step; the file only grows. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._clear()

    def _clear(self) -> None:
        self._end = 0  # of what was read
        self._steps, self._epochs = array("q"), array("q")
        self._hashes, self._shared = array("q"), array("q")  # of all but the logged values, of what replicas share
        self._begins, self._names = array("q"), array("q")  # bytes: of the record, of the names that it refers to
        self._latest_names, self._names_hash = _NO_NAMES, 0

    def update(self, file: BinaryIO) -> None:
        """Read what was added to the file. A step that comes again replaces what follows it, too."""
        with self._lock:
            if size_of(file) < self._end:
                self._clear()  # the script has truncated it
            begin = self._end
            for end, line in complete_lines(file, begin, end=_MAX_FILE_BYTES):
                if len(self._steps) >= _MAX_FILE_RECORDS:
                    return
                with suppress(ValueError):  # torn, or the script's
                    self._add(begin, line)
                begin = self._end = end

    @property
    def complete(self) -> bool:
        return self._end < _MAX_FILE_BYTES and len(self._steps) < _MAX_FILE_RECORDS

    def __len__(self) -> int:
        return len(self._steps)

    def _add(self, begin: int, line: bytes) -> None:
        value = parse_json(line)
        if isinstance(value, dict) and "step" not in value:
            DigestNames.from_json(value)
            self._latest_names, self._names_hash = begin, hash(line)
            return
        record = StepDigest.from_json(value)
        index = bisect_left(self._steps, record.step)
        own = record.batch, record.random, record.parts, record.tensors.get(TensorKind.BUFFERS)
        tensors = tuple(record.tensors.get(kind) for kind in TensorKind if kind is not TensorKind.BUFFERS)
        shared = hash((self._names_hash, *record.samples, record.order, tensors))
        added = (record.step, record.epoch, hash((shared, own)), shared, begin, self._latest_names)
        for column, number in zip(self._columns, added, strict=True):
            del column[index:]
            column.append(number)

    @property
    def _columns(self) -> tuple["array[int]", ...]:
        return self._steps, self._epochs, self._hashes, self._shared, self._begins, self._names

    def steps(self) -> list[tuple[int, int]]:
        """Each step with its epoch."""
        with self._lock:
            return list(zip(self._steps, self._epochs, strict=True))

    def find(self, step: int) -> "_Position | None":
        with self._lock:
            index = bisect_left(self._steps, step)
            if index == len(self._steps) or self._steps[index] != step:
                return None
            return _Position(*(column[index] for column in self._columns[2:]))


@lru_cache(maxsize=_CACHED)
def _positions(_path: Path, _inode: int) -> _Positions:
    return _Positions()


class _RankFile:
    """The digests of one rank in one attempt."""

    def __init__(self, root: Path, path: Path) -> None:
        self._root, self._path = root, path
        self._names: tuple[int, DigestNames | None] = (_NO_NAMES, None)
        with open_or_empty(root, path) as file:
            self.size = size_of(file)
            version = file_version(path) if self.size else None
            self.positions = _Positions() if version is None else _positions(path, version[0])
            self.positions.update(file)

    def read(self, step: int) -> RankDigest | None:
        """The record, and the digests that are in it; None where there is none."""
        found = self.positions.find(step)
        if found is None:
            return None
        with suppress(ValueError), open_or_empty(self._root, self._path) as file:
            record = StepDigest.from_json(_line_at(file, found.begin))
            if found.names != self._names[0]:
                self._names = found.names, DigestNames.from_json(_line_at(file, found.names))
            return RankDigest(record, _tensors(record, self._names[1]))
        return None  # the script has changed the file


def _line_at(file: BinaryIO, begin: int) -> object:
    file.seek(begin)
    return parse_json(file.readline(MAX_LINE))


def _tensors(record: StepDigest, names: DigestNames | None) -> Tensors:
    found: Tensors = {}
    for kind in TensorKind:
        with suppress(KeyError, ValueError):
            digests = unpack(record.tensors[kind])
            known = [] if names is None else names.of(kind)
            known = [*known[: len(digests)], *(f"tensor {index}" for index in range(len(known), len(digests)))]
            found[kind] = dict(zip(known, digests, strict=True))
    return found


class StepDigests:
    """The ranks after one step, each read when it is needed: together they may have gigabytes."""

    def __init__(self, step: int, attempt: AttemptSummary, files: dict[int, _RankFile]) -> None:
        self.step, self.attempt = step, attempt.number
        self._files = files
        positions = {rank: file.positions.find(step) for rank, file in files.items()}
        found = {rank: each for rank, each in positions.items() if each is not None}
        self.state_hashes = {rank: each.state_hash for rank, each in found.items()}
        """By rank a value that is equal in this process where all but what the rank has logged is equal."""
        self.shared_hash = found[RANK_ZERO].shared_hash if RANK_ZERO in found else None
        """Such a value of the order of the samples and of the tensors that replicas share."""
        self.world_size = attempt.world_size or max(self.state_hashes, default=0) + 1

    @cached_property
    def _whole(self) -> RankDigest | None:
        return self._files[RANK_ZERO].read(self.step)

    @property
    def ranks(self) -> list[int]:
        """The ranks with a digest, ascending, rank 0 among them."""
        return list(self.state_hashes)

    def rank(self, rank: int) -> RankDigest:
        """What a rank has written and what it shares with rank 0. Raises ValueError where the file is damaged."""
        own = self._whole if rank == RANK_ZERO else self._files[rank].read(self.step)
        if own is None or self._whole is None:
            raise ValueError(f"the digests of step {self.step} cannot be read")
        return RankDigest(own.record, {**self._whole.tensors, **own.tensors})

    @property
    def sharded(self) -> bool:
        """True where every rank has parameters of its own: shards, or replicas that have diverged."""
        others = [rank for rank in self.state_hashes if rank != RANK_ZERO]
        own = (self._files[rank].read(self.step) for rank in others)
        return bool(others) and all(each is None or TensorKind.PARAMETERS in each.tensors for each in own)


class DigestSeries:
    """The digests of some attempts of a job, of a step those of the latest attempt that has any.

    ``complete``: False where the files are too large to be read to their end.
    """

    def __init__(self, run_dir: RunDir, attempts: Iterable[AttemptSummary]) -> None:
        self._attempts: list[tuple[AttemptSummary, dict[int, _RankFile]]] = []
        self.complete = True
        self._bytes = self._records = 0
        for attempt in sorted(attempts, key=lambda each: -each.number):
            self._attempts.append((attempt, self._open(run_dir, attempt)))

    def _open(self, run_dir: RunDir, attempt: AttemptSummary) -> dict[int, _RankFile]:
        files: dict[int, _RankFile] = {}
        for rank in rank_numbers(run_dir, attempt):
            if self._bytes > _MAX_BYTES or self._records > _MAX_RECORDS:
                self.complete = False
                break
            file = _RankFile(run_dir.root, run_dir.attempt(attempt.number).rank(rank).digests)
            self._bytes += file.size
            self._records += len(file.positions)
            self.complete &= file.positions.complete
            files[rank] = file
        return files

    def steps(self) -> list[DigestedStep]:
        """The steps of which rank 0 has a digest, ascending."""
        found: dict[int, DigestedStep] = {}
        for attempt, files in reversed(self._attempts):
            for step, epoch in files[RANK_ZERO].positions.steps() if RANK_ZERO in files else ():
                found[step] = DigestedStep(step, attempt.number, epoch)
        return [found[step] for step in sorted(found)]

    def at(self, step: int) -> StepDigests:
        """What the ranks were after ``step``, one of ``steps``."""
        for attempt, files in self._attempts:
            if RANK_ZERO in files and files[RANK_ZERO].positions.find(step) is not None:
                return StepDigests(step, attempt, files)
        raise KeyError(step)
