"""What this machine lacks now and may have later, so that a request is to be sent again and nobody is to blame."""

import errno

LACKING = {
    errno.EMFILE: "open files (the limit of this process)",
    errno.ENFILE: "open files (the limit of this machine)",
    errno.ENOMEM: "memory",
    errno.EAGAIN: "processes or threads",
    errno.ENOBUFS: "memory for connections",
}
"""In words, by the number of an OSError."""


def raise_if_lacking(error: OSError) -> None:
    """Raise ``error`` again where it is of this kind: it is no finding about a file or a program."""
    if error.errno in LACKING:
        raise error
