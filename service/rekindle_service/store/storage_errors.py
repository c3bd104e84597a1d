"""What can be wrong with the database, by what a caller can do about it."""


class StorageError(Exception):
    """The database cannot be read or written now, but may be later; ``full`` when the disk has no space left.

    ``state`` is one word for ``/readyz``: full, unavailable, removed, replaced or damaged.
    """

    def __init__(self, message: str, *, full: bool, state: str = "unavailable") -> None:
        super().__init__(message)
        self.full = full
        self.state = "full" if full else state


class UnknownCommitError(StorageError):
    """The file was removed or replaced while a change was committed: it may be lost or not."""


class CorruptDatabaseError(Exception):
    """The database is damaged or is not of this version; no retry helps."""


class QueueFullError(Exception):
    """The queue, or that of one owner, has as many jobs as it may; the message names the limit."""
