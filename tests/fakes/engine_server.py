"""The engine alone, as a process that a test can kill: ``python engine_server.py HOME SLOTS``. Says "ready"."""

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fakes.launching import fake_launchers
from job_examples import cpu_machine
from rekindle_service.config.home import Home
from rekindle_service.scheduler.reconciler import Reconciler
from rekindle_service.store import Store

home = Home(Path(sys.argv[1]))
home.create()
lock = home.lock()
store = Store(home.database)
store.migrate()
machine = cpu_machine(int(sys.argv[2]))
engine = Reconciler(store, home, machine, fake_launchers(store, home, machine))
engine.start()
print("ready", flush=True)
threading.Event().wait()
