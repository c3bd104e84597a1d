"""The folder of all snapshots of a run: what the names in it mean, and the moves that survive a kill at any point.

``000000000040``            the snapshot of step 40, whole
``.tmp-<gen>-…40``          being written by generation <gen>; left behind by a kill, it means nothing
``.old-<gen>-…40``          step 40, moved aside for a newer snapshot of the same step
``.trash-<gen>-…40``        being deleted
``quarantine-…40``          failed its checks, or the training went back behind it; kept until newer ones are safe
"""

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.files import fsync_directory
from rekindle.contract.run_dir.pins import read_pins

_DIGITS = 12


@dataclass(frozen=True, slots=True)
class SnapshotFolder:
    """Used by rank 0 alone, but for ``temporary``. ``generation`` tells this launch's leftovers from dead ones'.

    ``pins`` is the file with the steps that are never deleted, where there is a server to write it.
    """

    root: Path
    generation: str
    pins: Path | None = None

    def path(self, step: int) -> Path:
        return self.root / _name(step)

    def temporary(self, step: int) -> Path:
        return self._marked("tmp", step)

    def steps(self) -> list[int]:
        """The steps of all whole snapshots, newest first. Whole is not yet intact: see ``manifest.verify``."""
        return self._numbers("")

    def publish(self, step: int) -> None:
        """Turn ``temporary(step)`` into the snapshot of ``step``, durably; one of the same step gives way to it."""
        aside = self._marked("old", step)
        if self.path(step).exists():
            self.path(step).rename(aside)
        try:
            self.temporary(step).rename(self.path(step))
        except OSError:
            if aside.exists():
                aside.rename(self.path(step))
            raise
        fsync_directory(self.root)
        shutil.rmtree(aside, ignore_errors=True)

    def discard(self, step: int) -> None:
        """Forget what was written for ``step`` and not published."""
        shutil.rmtree(self.temporary(step), ignore_errors=True)

    def quarantine(self, step: int) -> None:
        """Put a bad snapshot out of the way, where a person can look at it, unless the disk takes no changes."""
        target = self.root / f"quarantine-{_name(step)}"
        shutil.rmtree(target, ignore_errors=True)
        with suppress(OSError):
            self.path(step).rename(target)
            fsync_directory(self.root)

    def retire(self, keep: int, best: int | None = None) -> None:
        """Delete all but the newest ``keep``, that of step ``best`` and pinned ones; quarantined ones if older.

        Call it only when the newest snapshot is known to be intact: at least that one stays.
        """
        kept = self.steps()[: max(keep, 1)]
        if not kept:
            return
        for step in self.steps()[len(kept) :]:
            if step != best and not self._is_pinned(step):
                self._delete(step)
        for step in self._numbers("quarantine-"):
            if step < kept[-1] and not self._is_pinned(step):
                shutil.rmtree(self.root / f"quarantine-{_name(step)}", ignore_errors=True)

    def _delete(self, step: int) -> None:
        """A pin that comes meanwhile is either seen here, or finds the snapshot gone."""
        trash = self._marked("trash", step)
        self.path(step).rename(trash)
        if self._is_pinned(step):
            trash.rename(self.path(step))
        else:
            shutil.rmtree(trash, ignore_errors=True)

    def _was_pinned(self, mark: str, name: str) -> bool:
        """A pinned snapshot was being moved away for deletion."""
        return mark == ".trash" and name.isdecimal() and self._is_pinned(int(name))

    def _is_pinned(self, step: int) -> bool:
        return self.pins is not None and step in read_pins(self.pins)

    def sweep(self) -> None:
        """Clear away what other generations left unfinished, as far as the disk lets it.

        Only the one generation that may commit calls this.
        """
        if not self.root.is_dir():
            return
        for entry in self.root.iterdir():
            mark, _, rest = entry.name.partition("-")
            if mark not in (".tmp", ".old", ".trash") or rest.startswith(f"{self.generation}-"):
                continue
            snapshot = self.root / rest.rpartition("-")[2]
            wanted = mark == ".old" or self._was_pinned(mark, snapshot.name)
            if wanted and not snapshot.exists():  # the kill came between two renames of ``publish`` or ``_delete``
                with suppress(OSError):
                    entry.rename(snapshot)
            else:
                shutil.rmtree(entry, ignore_errors=True)

    def _marked(self, mark: str, step: int) -> Path:
        return self.root / f".{mark}-{self.generation}-{_name(step)}"

    def _numbers(self, prefix: str) -> list[int]:
        if not self.root.is_dir():
            return []
        names = [entry.name.removeprefix(prefix) for entry in self.root.iterdir() if entry.name.startswith(prefix)]
        return sorted((int(name) for name in names if len(name) == _DIGITS and name.isdecimal()), reverse=True)


def _name(step: int) -> str:
    return f"{step:0{_DIGITS}d}"
