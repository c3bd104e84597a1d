"""The machine, or the container of the server, goes down under its jobs, and comes back."""

import os
import signal
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.serve_process import ServeProcess
from e2e.served_job import ServedJob
from e2e.waiting import until
from rekindle.contract.run_dir.journal import RecordType
from rekindle_service.client import Client
from rekindle_service.client.discovery import Server
from slurm.hosts import child_of, run

_BODY = {
    "recipe": "ddp",
    "args": ["--epochs", "4", "--throttle", "0.05"],
    "ranks": 2,
    "device": "cpu",
    "snapshot": {"every_steps": 5},
}


@pytest.mark.skipif(os.geteuid() != 0, reason="another boot id needs a mount namespace: root")
def test_jobs_of_a_machine_that_went_down_come_back_by_themselves(
    server: ServeProcess, client: Client, home: Path, tmp_path: Path
) -> None:
    job = ServedJob(client, home, _BODY)
    job.reach(beyond=job.reach_snapshot())
    server.kill()
    job.kill_keeper()
    until(lambda: not job.processes(), "nothing of the job is left", 5)
    boot_id = tmp_path / "boot_id"
    boot_id.write_text(f"{uuid.uuid4()}\n")
    server.start(boot_id)
    assert job.finish() == "succeeded"
    first, *_, last = client.attempts(job.id)
    assert first["outcome"]["class"] == "host_lost"
    assert first["outcome"]["message"] == "The machine went down under the job."
    assert last["resumed_from_step"] > 0
    assert [record.state for record in job.records(RecordType.JOB_ENDED)] == ["succeeded"]


class Container(ServeProcess):
    """A server that is process 1 of its own process namespace: what has started there ends with it."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, under=["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"])

    def start(self, boot_id: Path | None = None) -> None:
        (self.home / "server.json").unlink(missing_ok=True)  # the server before was process 1, too
        super().start(boot_id)

    def locate(self) -> Server:
        """Without the lock of the home: from outside of a container nobody can see which process has it."""
        return Server(self.url, self.token)

    def _pid_of_its_own(self) -> int:
        return 1

    def stop(self) -> None:
        """Send SIGTERM to process 1 alone, as ``docker stop`` does; its end is that of all others."""
        assert self._process is not None
        if self._process.poll() is None:
            os.kill(child_of(self.pid), signal.SIGTERM)
            self._process.wait(timeout=20)

    def send_sigterm_to_all(self) -> None:
        """Send it to all but process 1, as scripts do that are process 1 themselves; the kernel chooses the order."""
        run("nsenter", f"--target={child_of(self.pid)}", "--pid", "sh", "-c", "kill -TERM -1", check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace needs root")
@pytest.mark.parametrize("first", ["server", "nobody", "all", "ranks", "keeper"])
def test_jobs_of_a_container_that_was_stopped_come_back_by_themselves(home: Path, first: str) -> None:
    """Processes get SIGTERM ``first``, then the server does; in the end, or at once, all get SIGKILL."""
    with Container(home) as container, Client(container.locate) as client:
        job = ServedJob(client, home, _BODY)
        job.reach(beyond=job.reach_snapshot())
        ranks, keeper = [pid for pid in job.processes() if name_of(pid).startswith("rank ")], job.keeper().pid
        assert len(ranks) == 2
        if first == "all":
            container.send_sigterm_to_all()
        for pid in {"ranks": [*ranks, keeper], "keeper": [keeper, *ranks]}.get(first, []):
            with suppress(ProcessLookupError):  # it has ended already
                os.kill(pid, signal.SIGTERM)
        if first in ("all", "ranks", "keeper"):
            until(job.classes, "the keeper has written how the attempt ended", 60)
            assert job.classes()[0] == "preempted"
        container.kill() if first == "nobody" else container.stop()
        until(lambda: not job.processes(), "nothing of the job is left", 5)
        container.start()
        assert job.finish() == "succeeded"
        *stopped, last = client.attempts(job.id)
        assert {each["outcome"]["class"] for each in stopped} <= {"preempted", "keeper_lost"}
        assert {each["outcome"]["rank"] for each in stopped} == {None}
        assert last["resumed_from_step"] > 0


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()
