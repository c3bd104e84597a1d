"""The command `rekindle`, also as ``python -m rekindle_service`` for whoever knows an interpreter but not its PATH."""

import sys

from rekindle_service.loading import collector_paused


def main() -> None:
    """Entry point of the console script. Ctrl-C while the program is still loading ends it as quietly as later on."""
    try:
        with collector_paused():
            from rekindle_service.cli.main import main as carry_out
    except KeyboardInterrupt:
        sys.exit(130)
    carry_out()


if __name__ == "__main__":
    main()
