"""The rank's part of ``rekindle chaos``: it does to itself what cannot be done from outside."""

import signal
import time
from types import FrameType

from rekindle.contract.chaos import CHAOS_SIGNAL, Fault
from rekindle.contract.run_dir.paths import RankDir


class InjectedError(RuntimeError):
    """Raised on request of ``rekindle chaos``, never by itself."""


def obey_chaos(rank_dir: RankDir) -> None:
    """Listen for ``CHAOS_SIGNAL``; Python runs the handler in the main thread, between two steps of the script."""

    def obey(_number: int, _frame: FrameType | None) -> None:
        match Fault(rank_dir.chaos.read_text()):
            case Fault.RAISE:
                raise InjectedError("injected by `rekindle chaos`")
            case Fault.OOM:
                raise MemoryError("injected by `rekindle chaos`")
            case Fault.HANG:
                while True:
                    time.sleep(3600)

    signal.signal(CHAOS_SIGNAL, obey)
