"""How the tables came to be, one step a file in ``versions``, whose name begins with its version.

alembic is imported where there is something to change: it takes a tenth of a server's start.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

if TYPE_CHECKING:
    from alembic.config import Config

_DIRECTORY = Path(__file__).parent


class UnknownVersionError(Exception):
    """The database was written by a newer version of rekindle, or before its first release."""


def pending(connection: Connection) -> str | None:
    """The version that ``upgrade`` leads to; None where the tables have it, are missing, or are of an unknown one."""
    *earlier, latest = versions()
    return latest if _version_of(connection) in earlier else None


def upgrade(connection: Connection) -> None:
    """Bring the tables to the latest version within the caller's transaction. Raises UnknownVersionError."""
    if _version_of(connection) == versions()[-1]:
        return
    from alembic import command
    from alembic.util import CommandError

    try:
        command.upgrade(_config(connection), "head")
    except CommandError as error:
        raise UnknownVersionError(
            f"written by a newer version of rekindle, or before its first release ({error}); use that version, or "
            "rekindle rebuild, which makes the list of jobs again from the run directories"
        ) from error


@cache
def versions() -> tuple[str, ...]:
    """All versions that tables may have, the latest last."""
    return tuple(sorted(path.name[1:5] for path in _DIRECTORY.glob("versions/v*.py")))


def _version_of(connection: Connection) -> str | None:
    """The version of the tables; None where there are none."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return version


def _config(connection: Connection) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_DIRECTORY).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
