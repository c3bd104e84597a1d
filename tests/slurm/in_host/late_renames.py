"""Renames of an interpreter happen later, in their order and whatever becomes of it.

``python late_renames.py ASIDE SECONDS`` is the process that lets them happen, each ``SECONDS`` after it was asked for.
"""

import os
import sys
import time


def begin(below: str, aside: str) -> None:
    """Delay renames to paths ``below``; ``aside``: a directory of the same file system, where they wait."""
    os.rename, os.replace = (_late(real, below, aside) for real in (os.rename, os.replace))


def _late(real, below, aside):
    """What stands for ``real``: the source is gone at once, as where the rename has happened."""

    def rename(src, dst, *, src_dir_fd=None, dst_dir_fd=None):
        target = os.path.abspath(os.fsdecode(dst))
        if src_dir_fd is not None or dst_dir_fd is not None or not target.startswith(f"{below}/"):
            return real(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        name = f"{aside}/{time.monotonic_ns():020}-{os.getpid()}"
        take(src, name)
        with open(f"{name}.new", "w") as file:
            file.write(target)
        return real(f"{name}.new", f"{name}.to")

    def take(src, name):
        source = os.path.abspath(os.fsdecode(src))
        while True:
            is_late = source in [target for _, target in _pending(aside)]
            try:
                return real(src, name)
            except FileNotFoundError:
                if not is_late:
                    raise
            time.sleep(0.05)

    return rename


def _pending(aside):
    """Name and target of what is still to be renamed, in the order in which that was asked for."""
    found = []
    for entry in sorted(entry for entry in os.listdir(aside) if entry.endswith(".to")):
        try:
            with open(f"{aside}/{entry}") as file:
                found.append((entry.removesuffix(".to"), file.read()))
        except FileNotFoundError:  # it has just happened
            continue
    return found


def main(aside: str, seconds: float) -> None:
    while True:
        for name, target in _pending(aside):
            if time.monotonic_ns() < int(name.partition("-")[0]) + seconds * 1e9:
                break
            try:
                os.rename(f"{aside}/{name}", target)
            except OSError as error:
                print(error, file=sys.stderr, flush=True)
            os.unlink(f"{aside}/{name}.to")
        time.sleep(0.02)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
