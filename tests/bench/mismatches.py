"""Mismatched ranks: which rank and line are named, and after how many seconds.

    python tests/bench/mismatches.py [--kinds early_exit,spin] [--modes reports-warm,plain-cold] [--shown]

With ``--shown`` no script has a ``hang_timeout``: after how many seconds a stall is shown, with which rank, and whether
the attempt ends within 20 s. Without it:
Scripts that report steps are judged by the pace that is learned from them, plain ones with ``hang_timeout`` here (5 s
warm, 30 s cold), since they have 300 s otherwise. Prints one row of a Markdown table for each mismatch.
"""

import argparse
import os
import statistics
import sys
import tempfile
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults import faulty_run
from faults.mismatch import KINDS, begin, plain_limit, shown_stall, table_row, verdicts
from rekindle.contract.states import JobIntent

MODES = ("reports-warm", "reports-cold", "plain-warm", "plain-cold")
_SOON = 20.0  # seconds after a stall is shown
_PATIENCE = 900.0  # seconds for one run on a busy machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--shown", action="store_true")
    options = parser.parse_args()
    faulty_run._LONG = _PATIENCE
    print(f"load {os.getloadavg()[0]:.1f} before, {os.cpu_count()} cores\n", flush=True)
    if options.shown:
        show_stalls(options)
        return
    print("| mismatch | script | start | class | rank | line | seconds to verdict | right |\n" + "|---" * 8 + "|")
    with tempfile.TemporaryDirectory(prefix="mismatches-") as directory:
        for mode in options.modes.split(","):
            reports, warm = mode.startswith("reports"), mode.endswith("warm")
            for kind in options.kinds.split(","):
                if kind == "run_break" and not reports:
                    continue  # a Run always reports
                limit = plain_limit(reports=reports, warm=warm)
                run = begin(Path(directory), kind, reports=reports, warm=warm, hang_timeout=limit)
                try:
                    run.finish()
                    for verdict in verdicts(run, (kind,)):
                        print(table_row(verdict, reports=reports, warm=warm), flush=True)
                finally:
                    run.close()


def show_stalls(options: argparse.Namespace) -> None:
    print("| mismatch | script | shown after s | rank | sentence | ended after s |\n" + "|---" * 6 + "|")
    found = []
    with tempfile.TemporaryDirectory(prefix="mismatches-") as directory:
        for mode, kind in product(options.modes.split(","), options.kinds.split(",")):
            reports, warm = mode.startswith("reports"), mode.endswith("warm")
            if kind == "run_break" and not reports:
                continue
            run = begin(Path(directory), kind, reports=reports, warm=warm, hang_timeout=None)
            try:
                shown = shown_stall(run, kind, _SOON)
            finally:
                run.want(JobIntent.CANCEL)
                run.leave()
                run.close()
            found.append(shown)
            print(f"| {kind} | {mode} | {shown.row()} |", flush=True)
    seconds = [each.seconds for each in found if each.seconds is not None]
    right = sum(each.rank == (0 if each.kind == "evaluation" else 1) for each in found)
    times = f"median {statistics.median(seconds):.1f} s, at most {max(seconds):.1f} s"
    print(f"\n{times}; the rank is right in {right} of {len(found)}")


if __name__ == "__main__":
    main()
