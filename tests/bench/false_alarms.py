"""Whether healthy but odd jobs are ever ended as hung, in simulated time: the rate of false alarms.

    python tests/bench/false_alarms.py --hours 24

Plays ranks second by second to the real `HangDetector`; prints each job, its simulated hours, and the stalls shown.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from odd_jobs import JOBS
from played_ranks import PlayedRanks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24)
    options = parser.parse_args()
    began, alarms = time.monotonic(), 0
    print("| job | ranks | hours | ended as hung |\n|---|---|---|---|", flush=True)
    for name, (size, program) in JOBS.items():
        with tempfile.TemporaryDirectory(prefix="false-alarms-") as directory:
            played = PlayedRanks({rank: program(rank) for rank in range(size)}, Path(directory))
            if name == "sleeps with the machine":
                played.suspended = lambda now: 3600.0 if int(now) % 7200 == 0 else 0.0
            hang = played.run(options.hours * 3600)
        alarms += hang is not None
        ended = "no" if hang is None else f"after {played.now:.0f} s: {hang.culprit.description}"
        print(f"| {name} | {size} | {played.now / 3600:.1f} | {ended} |", flush=True)
    print(f"\n{alarms} false alarms of {len(JOBS)} jobs, in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
