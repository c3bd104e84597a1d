import json
import subprocess
import sys

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
