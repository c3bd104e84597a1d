import json
import os
import subprocess
import sys
from pathlib import Path

LOGGERS = r"""
import logging, structlog
from rekindle_service.config.logging_config import configure_logging

def fail(secret):
    raise ValueError(len(secret))

configure_logging()
logging.getLogger("uvicorn.error").warning("name: %s", 'a"\nERROR forged \x1b[31m')
for log in (logging.getLogger("asyncio").exception, structlog.get_logger().exception):
    try:
        fail("hunter" + "2")
    except ValueError:
        log("it failed")
"""


def test_a_line_of_any_logger_is_one_json_object_without_local_variables() -> None:
    done = subprocess.run([sys.executable, "-c", LOGGERS], capture_output=True, text=True, check=True)
    first, *failures = [json.loads(line) for line in done.stderr.splitlines()]
    assert (first["event"], first["level"]) == ('name: a"\nERROR forged \x1b[31m', "warning")
    assert len(failures) == 2
    for failure in failures:
        assert (failure["event"], failure["level"]) == ("it failed", "error")
        assert "ValueError: 7" in failure["exception"]
    assert "hunter2" not in done.stderr


UNWRITABLE = r"""
import logging, resource, structlog
from rekindle_service.config.logging_config import configure_logging

class Hostile:
    def __repr__(self):
        raise MemoryError

configure_logging()
def log():
    structlog.get_logger().warning("x" * 100, value=Hostile())
    logging.getLogger("uvicorn.error").error("y" * 100)

before = resource.getrlimit(resource.RLIMIT_FSIZE)
log()
resource.setrlimit(resource.RLIMIT_FSIZE, (600, before[1]))  # the disk becomes full
for _ in range(3):
    log()
resource.setrlimit(resource.RLIMIT_FSIZE, before)
log()
print("alive")
"""


def test_lines_that_cannot_be_written_are_counted_and_raise_nothing(tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as log:
        done = subprocess.run([sys.executable, "-c", UNWRITABLE], stdout=subprocess.PIPE, stderr=log, check=True)
    assert done.stdout == b"alive\n"
    lines = (tmp_path / "log").read_text().splitlines()
    torn = [line for line in lines if not line.endswith("}")]
    shown = [json.loads(line) for line in lines if line not in torn]
    assert len(torn) == 1
    lost = 10 - sum(len(line["event"]) == 100 for line in shown)
    assert lost > 0
    assert [line["event"] for line in shown if "could not" in line["event"]] == [
        f"{lost} lines of this log could not be written"
    ]
    assert shown[0]["error"] == "not shown: MemoryError"


def test_a_reader_that_does_not_read_holds_nothing_up() -> None:
    reading, writing = os.pipe()
    try:
        code = UNWRITABLE.replace("range(3)", "range(1000)")
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writing, check=True)
        assert done.stdout == b"alive\n"
    finally:
        os.close(reading)
        os.close(writing)
