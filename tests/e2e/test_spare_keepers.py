"""A job of a real server starts from a spare keeper, and outlives both."""

from pathlib import Path

import psutil

from e2e.serve_process import ServeProcess
from e2e.served_job import ServedJob
from e2e.waiting import until
from rekindle.contract.processes import parent_of
from rekindle.keeper.spare import PROCESS_NAME
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings

_SCRIPT = """
import pathlib, time
while not pathlib.Path("finish").exists():
    time.sleep(0.01)
"""


def test_a_job_starts_from_a_spare_keeper_and_outlives_it_and_its_server(home: Path, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(_SCRIPT)
    body = {"script": "train.py", "code": {"path": str(code)}, "ranks": 2, "device": "cpu"}
    with (
        ServeProcess(home, environment={"REKINDLE_SPARE_KEEPERS": "1"}) as server,
        Client.from_home(Settings(home=home)) as client,
    ):
        spare = until(lambda: spares(server), "the server has a spare keeper", 120)[0]
        first, second = (ServedJob(client, home, {**body, "name": name}) for name in ("first", "second"))
        until(lambda: first.pids() and second.pids(), "both jobs run", 120)
        keepers = [job.keeper() for job in (first, second)]
        assert [parent_of(keeper.pid) for keeper in keepers] == [spare.pid, spare.pid]
        server.kill()
        until(lambda: not spare.is_running(), "the spare keeper has ended with its server", 30)
        server.start()
        assert [job.keeper() for job in (first, second)] == keepers
        for job in (first, second):
            (job.run_dir.code / "finish").touch()
        assert [job.finish() for job in (first, second)] == ["succeeded", "succeeded"]


def spares(server: ServeProcess) -> list[psutil.Process]:
    """The spare keepers of the server that are ready."""
    return [child for child in psutil.Process(server.pid).children() if child.name() == PROCESS_NAME]
