"""Mismatched ranks: which rank and line are named, and after how many seconds.

    python tests/bench/mismatches.py [--kinds early_exit,spin] [--modes reports-warm,plain-cold]

Scripts that report steps are judged by the pace that is learned from them, plain ones with ``hang_timeout`` here (5 s
warm, 30 s cold), since they have 300 s otherwise. Prints one row of a Markdown table for each mismatch.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults import faulty_run
from faults.mismatch import KINDS, begin, plain_limit, table_row, verdicts

MODES = ("reports-warm", "reports-cold", "plain-warm", "plain-cold")
_PATIENCE = 900.0  # seconds for one run on a busy machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--modes", default=",".join(MODES))
    options = parser.parse_args()
    faulty_run._LONG = _PATIENCE
    print(f"load {os.getloadavg()[0]:.1f} before, {os.cpu_count()} cores\n", flush=True)
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


if __name__ == "__main__":
    main()
