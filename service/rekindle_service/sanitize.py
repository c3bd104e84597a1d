"""Text of users, made harmless for a terminal.

A job's name, its output and its errors are written by others. Sent to a terminal as they are, they could move the
cursor, retitle the window, fill the clipboard (OSC 52) or hide what stands before them.
"""

import re

_SEQUENCES = re.compile(
    r"""
      (?:\x1b\[|\x9b) [0-?]*+ [ -/]*+ [@-~]             # CSI: colours, cursor
    | (?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])              # OSC, DCS, SOS, PM, APC …
      [^\x07\x1b\x90\x98\x9c-\x9f\n]*+                  # … whose text ends where the next one begins,
      (?:\x07|\x1b\\|\x9c)                              # so that a scan never runs over the same text twice
    | \x1b [ -/]*+ [0-~]                                # all other escapes
    """,
    re.VERBOSE,
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_REORDERING = re.compile("[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_LINE_BREAKS = re.compile("\r\n|[\r\u2028\u2029]")


def strip_control(text: str) -> str:
    """``text`` without escape sequences and control characters, line ends and tabs kept.

    A carriage return becomes a line end: it would otherwise write over what stands before it, and a progress bar
    would be one line without end. An escape sequence without its end loses only its beginning: the rest is ordinary
    text, and may be what the reader looks for. Direction marks go, since they show text in another order than it is.
    """
    text = _LINE_BREAKS.sub("\n", text)
    text = _CONTROLS.sub("", _SEQUENCES.sub("", text))
    return _SURROGATES.sub("\ufffd", _REORDERING.sub("", text))


def sanitize_line(value: object) -> str:
    """``str(value)`` as harmless text of one line."""
    return strip_control(str(value)).replace("\n", " ").replace("\t", " ")
