"""A script that takes requests and answers them in lines, on its standard input and output."""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import IO

from rekindle.contract.environment import clean_environment


class ScriptProcess:
    """Runs until ``close``, or until this process ends, whose end closes its standard input."""

    def __init__(self, *words: object, command: Sequence[str] = (), stderr: IO[bytes] | None = None) -> None:
        """``words`` are those behind ``python``, which ``command`` runs on another host."""
        self._process = subprocess.Popen(
            [*command, sys.executable, *map(str, words)],
            cwd="/",
            env={**clean_environment(os.environ), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def request(self, *words: object) -> None:
        print(*words, file=self._process.stdin, flush=True)

    def line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        return line.rstrip("\n")

    def ask(self, *words: object) -> str:
        self.request(*words)
        return self.line()

    def close(self) -> None:
        """What it has been asked for last is done before it ends."""
        self._process.communicate(timeout=60)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()
