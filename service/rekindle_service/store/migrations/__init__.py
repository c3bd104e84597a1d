"""How the tables came to be, one step a file in ``versions``."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection


class UnknownVersionError(Exception):
    """The database was written by a newer version of rekindle, or by one before 0.1.0."""


def upgrade(connection: Connection, version: str = "head") -> None:
    """Bring the tables to ``version`` within the caller's transaction. Raises UnknownVersionError."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, version)
    except CommandError as error:
        text = f"written by a newer version of rekindle, or by one before 0.1.0 ({error}); use that version"
        raise UnknownVersionError(text) from error
