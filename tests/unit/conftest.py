"""What several unit tests open."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import pytest


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Callable[[bytes], BinaryIO]]:
    """Write the bytes into a log and open it for reading."""
    with ExitStack() as opened:

        def write(data: bytes) -> BinaryIO:
            (tmp_path / "stdout.log").write_bytes(data)
            return opened.enter_context((tmp_path / "stdout.log").open("rb"))

        yield write
