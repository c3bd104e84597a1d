"""Rank 0 writes nonsense wherever a rank may write, its peer's files included; then both end as they should."""

import json
import os
import time
from pathlib import Path

RUN = Path(os.environ["REKINDLE_RUN_DIR"])
ATTEMPT = int(os.environ["REKINDLE_ATTEMPT"])
NONSENSE = [b"", b"\x00\xff", b"[]", b"null", b"{}", b"[" * 100_000, b'{"drained": 3}', b'"' + b"x" * 1_000_000]
NONSENSE += [b'{"step": "x", "state": "done"}', b'{"rank": NaN, "at_monotonic": 1e999}']
KINDS = ["rank_started", "rank_exited", "rank_done", "rank_failed", "resumed", "stack", "chaos", "intent", "no such"]
VALUES = [None, -1, 0, 1, 10**30, 1.5, "x", [], {}, True]


def messages():
    yield from (line + b"\n" for line in NONSENSE)
    for kind in KINDS:
        for value in VALUES:
            names = ("rank", "local_rank", "pid", "start_time", "exit_code", "signal", "step", "fault")
            if not (kind in ("rank_failed", "rank_done", "stack") and value in (0, 1)):
                yield json.dumps({"type": kind, "attempt": ATTEMPT, **dict.fromkeys(names, value)}).encode() + b"\n"
    yield from (b'{"type": "no such", "attempt": 1}\n' for _ in range(20_000))
    yield b"half a line"


def main():
    if os.environ["RANK"] != "0":
        time.sleep(1)
        return
    fifo = os.open(RUN / "control.fifo", os.O_WRONLY)
    for line in messages():
        os.write(fifo, line)
    os.close(fifo)
    for rank in ("0", "1"):
        directory = RUN / "attempts" / str(ATTEMPT) / "ranks" / rank
        for name in ("status.json", "done.json", "error.json"):
            for nonsense in NONSENSE:
                (directory / name).write_bytes(nonsense)
    (directory / "stacks.log").unlink()
    os.mkfifo(directory / "stacks.log")


main()
