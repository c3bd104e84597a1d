"""``python -m rekindle_service`` is the command `rekindle`, for whoever knows an interpreter but not its PATH."""

from rekindle_service.cli.main import main

if __name__ == "__main__":
    main()
