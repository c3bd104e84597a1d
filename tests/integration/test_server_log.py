import json
import subprocess
import sys

SPEAKERS = r"""
import logging, structlog
from rekindle_service.config.logging_config import configure_logging

def fail(secret):
    raise ValueError(len(secret))

configure_logging()
logging.getLogger("uvicorn.error").warning("name: %s", 'a"\nERROR forged \x1b[31m')
for tell in (logging.getLogger("asyncio").exception, structlog.get_logger().exception):
    try:
        fail("hunter" + "2")
    except ValueError:
        tell("it failed")
"""


def test_whoever_speaks_in_the_server_a_line_is_one_json_object_and_tells_no_local_variable() -> None:
    done = subprocess.run([sys.executable, "-c", SPEAKERS], capture_output=True, text=True, check=True)
    said, *failures = [json.loads(line) for line in done.stderr.splitlines()]
    assert (said["event"], said["level"]) == ('name: a"\nERROR forged \x1b[31m', "warning")
    assert len(failures) == 2
    for failure in failures:
        assert (failure["event"], failure["level"]) == ("it failed", "error")
        assert "ValueError: 7" in failure["exception"]
    assert "hunter2" not in done.stderr
