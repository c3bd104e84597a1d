"""A server's submissions and engine on a disk whose power is cut: ``python cut_server.py``; homes come on stdin.

For each home a child recovers, submits and runs jobs until the disk takes no more. It writes what it has
acknowledged: "submitted ID", "ended ID STATE", and at last "stopped"; after its recovery "row ID STATE" for every job.
"""

import os
import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from fakes.launching import fake_launchers
from job_examples import a_submission, cpu_machine
from rekindle.contract.job_options import TargetKind
from rekindle.contract.states import TERMINAL
from rekindle_service.config.home import Home
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.scheduler.reconciler import Reconciler
from rekindle_service.store import Store

SLOTS = 2
output = threading.Lock()


def report(*words: object) -> None:
    with output:
        os.write(1, (" ".join(map(str, words)) + "\n").encode())


def serve(root: Path) -> None:
    home = Home(root)
    home.create()
    store = Store(home.database)
    store.migrate()  # by itself: a copied database would not be durable
    launchers = fake_launchers(store, home, cpu_machine(SLOTS))
    engine = Reconciler(store, home, cpu_machine(SLOTS), launchers)
    engine.recover()
    for job_id in store.recovery.known_jobs():
        report("row", job_id, store.job_state(job_id))
    report("recovered")
    submitter = Submitter(store, home, launchers)
    threading.Thread(target=submit, args=(submitter,), daemon=True).start()
    ended = {job_id for job_id in store.recovery.known_jobs() if store.job_state(job_id) in TERMINAL}
    while True:
        engine.reconcile()
        for job_id in store.recovery.known_jobs().keys() - ended:
            if (state := store.job_state(job_id)) in TERMINAL:
                ended.add(job_id)
                report("ended", job_id, state)


def submit(submitter: Submitter) -> None:
    asked = a_submission(kind=TargetKind.MODULE, target="m", args=["succeed"], python=sys.executable)
    while True:
        try:
            report("submitted", submitter.submit(asked).id)
        except Exception as error:  # noqa: BLE001 - the power is off
            print(error, file=sys.stderr)
            os.kill(os.getpid(), signal.SIGKILL)


for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        try:
            serve(Path(line.strip()))
        finally:
            os._exit(1)
    report("begun", pid)
    os.waitpid(pid, 0)
    report("stopped")
