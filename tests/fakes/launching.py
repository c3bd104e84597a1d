"""Starting the fake keeper as the real one is started."""

import subprocess
import sys
from pathlib import Path

from rekindle_service.config.home import Home
from rekindle_service.launchers.keeper_pool import KeeperStarter
from rekindle_service.store.tables import Job


def launch_fake(home: Home) -> KeeperStarter:
    def launch(job: Job) -> "subprocess.Popen[bytes]":
        run_dir = home.run_dir(job.id)
        with run_dir.keeper_log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__).with_name("fake_keeper.py")), str(run_dir.root)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    return launch
