"""How the tables came to be, one step a file in ``versions``."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, text


class UnknownVersionError(Exception):
    """The database was written by a newer version of rekindle, or by one before 0.1.0."""


def pending(connection: Connection) -> str | None:
    """The version that ``upgrade`` leads to; None where the tables have it, are missing, or are of an unknown one."""
    present = MigrationContext.configure(connection).get_current_revision()
    latest, *earlier = (each.revision for each in ScriptDirectory.from_config(_config(connection)).walk_revisions())
    return latest if present in earlier else None


def upgrade(connection: Connection, version: str = "head") -> None:
    """Bring the tables to ``version`` within the caller's transaction. Raises UnknownVersionError."""
    try:
        command.upgrade(_config(connection), version)
    except CommandError as error:
        finding = f"written by a newer version of rekindle, or by one before 0.1.0 ({error}); use that version"
        raise UnknownVersionError(finding) from error
    if connection.dialect.name == "postgresql":
        _widen_integers(connection)


def _widen_integers(connection: Connection) -> None:
    """The migrations say INTEGER, which has 64 bits in SQLite and 32 in PostgreSQL."""
    narrow = text(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = current_schema() AND data_type = 'integer'"
    )
    for table, column in connection.execute(narrow).all():
        connection.execute(text(f'ALTER TABLE "{table}" ALTER COLUMN "{column}" TYPE BIGINT'))


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
