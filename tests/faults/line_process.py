"""A script that takes requests and answers them in lines, on its standard input and output."""

import os
import subprocess
import sys

from faults.faulty_run import SCRIPTS


class LineProcess:
    """Runs one of ``scripts`` until ``close``."""

    def __init__(self, script: str, *args: object) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REKINDLE_")}
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPTS / script), *map(str, args)],
            cwd="/",
            env={**environment, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def request(self, *words: object) -> None:
        print(*words, file=self._process.stdin, flush=True)

    def line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        return line.rstrip("\n")

    def close(self) -> None:
        self._process.communicate(timeout=60)
