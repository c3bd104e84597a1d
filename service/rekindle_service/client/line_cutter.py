"""Bytes of a growing log, cut into lines."""

import re

_LINE_END = re.compile(rb"\r?\n|\r(?=[^\n])")
_LONGEST = 1 << 16  # bytes; a line without an end is shown in pieces


class LineCutter:
    """Gives whole lines, however the bytes come.

    A carriage return ends a line too, since a progress bar never writes another end; one that comes last may be half
    of a Windows line end, and waits for the next byte.
    """

    def __init__(self) -> None:
        self._rest = b""

    def cut(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes, each with its end."""
        self._rest += data
        lines, taken = [], 0
        for end in _LINE_END.finditer(self._rest):
            lines.append(self._rest[taken : end.end()])
            taken = end.end()
        self._rest = self._rest[taken:]
        if len(self._rest) > _LONGEST:
            lines.append(self.rest())
        return lines

    def rest(self) -> bytes:
        """What came without a line end; to be asked when nothing more will come."""
        rest, self._rest = self._rest, b""
        return rest
