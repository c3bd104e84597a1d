"""Leaves files open with lines in their buffers, as short scripts do: first when it fails, then when it ends well."""

import ctypes
import gzip
import os
import sys
from pathlib import Path

FOLDER = Path(sys.argv[1], os.environ["REKINDLE_ATTEMPT"])
FOLDER.mkdir()

losses = (FOLDER / "losses.csv").open("w")
losses.write("step,loss\n")
packed = gzip.open(FOLDER / "packed.gz", "wt")  # noqa: SIM115
packed.write("a packed line\n")


def main() -> None:
    notes = (FOLDER / "notes.txt").open("w")
    notes.write("a last note\n")
    if os.environ["REKINDLE_ATTEMPT"] == "1":
        raise ValueError("while the notes are open")
    globals()["notes"] = notes


ctypes.CDLL(None).printf(b"said by a C library\n")
main()
