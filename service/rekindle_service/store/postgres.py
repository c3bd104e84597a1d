"""PostgreSQL in place of the SQLite file: how it is opened, how writers take turns, and what its errors mean."""

import json
import math
from collections.abc import Mapping
from typing import Any

import structlog
from sqlalchemy import URL, BigInteger, ColumnElement, Connection, Engine, Integer, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.orm import Mapped
from sqlmodel import SQLModel

from rekindle_service.store.errors import CorruptDatabaseError, StorageError

_log = structlog.get_logger(__name__)

_DRIVER = "postgresql+psycopg"
_NAMES = frozenset({_DRIVER, "postgresql", "postgres"})
_WRITERS = int.from_bytes(b"rekindle")
"""Key of the advisory lock that a writer holds until its transaction has ended."""
_SERVER = _WRITERS + 1
"""Key of the advisory lock that a server holds as long as it is connected."""

_CONNECT = {
    "connect_timeout": "5",
    "application_name": "rekindle",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",  # milliseconds
}
_SESSION = {
    "lock_timeout": "5s",
    # A machine that loses its power in a transaction holds the writers' lock until PostgreSQL gives it up.
    "idle_in_transaction_session_timeout": "60s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
_LOCK_TIMEOUT = "55P03"
_TEMPORARY = ("08", "25006", "25P03", "28", "3D", "40", "53", _LOCK_TIMEOUT, "57", "58", "XX")
"""How the SQLSTATE of what may be over later begins: a lost connection, say, or a standby that is promoted."""


def parse_url(url: str) -> URL:
    """Raises ValueError, which does not contain the password."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ValueError("must be a URL such as postgresql+psycopg://user@host/database") from error
    if parsed.drivername not in _NAMES or not parsed.database:
        raise ValueError(f"must be {_DRIVER}://USER@HOST/DATABASE, not {parsed.drivername}:// with that database")
    return parsed.set(drivername=_DRIVER)


class PostgreSQL:
    """A ``Backend``. The password is in no message; libpq also finds it in ``~/.pgpass`` and ``PGPASSWORD``."""

    def __init__(self, url: str) -> None:
        self._url = parse_url(url)
        self.name = self._url.render_as_string(hide_password=True)
        self._server_lock: Connection | None = None

    def engine(self) -> Engine:
        _widen_integers()
        defaults = {name: value for name, value in _CONNECT.items() if name not in self._url.query}
        try:
            import psycopg  # noqa: F401 an optional dependency, which SQLAlchemy loads
        except ModuleNotFoundError as error:
            raise ValueError(f"{self.name} needs psycopg: pip install 'rekindle[postgresql]'") from error
        engine = create_engine(
            self._url,
            connect_args=defaults,
            pool_size=20,
            max_overflow=30,
            pool_pre_ping=True,  # a connection that PostgreSQL has closed in the meantime is replaced, not reported
            hide_parameters=True,
            isolation_level="REPEATABLE READ",  # a reader has one consistent view
            json_serializer=_to_json,
        )
        event.listen(engine, "connect", _on_connect)
        event.listen(engine, "before_cursor_execute", _clean_parameters, retval=True)
        return engine

    def writing(self, engine: Engine) -> Engine:
        """Writers see what was committed before they got their turn, so their view begins after that."""
        return engine.execution_options(isolation_level="READ COMMITTED")

    def take_turn(self, connection: Connection) -> None:
        """Then versions are committed in their order, which the change feed needs."""
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITERS})")

    def check(self, connection: Connection) -> str | None:
        """PostgreSQL checks itself; only settings that lose commits are worth a line in the log."""
        for setting in ("fsync", "full_page_writes"):
            if connection.exec_driver_sql(f"SHOW {setting}").scalar() == "off":
                _log.warning("PostgreSQL may lose accepted jobs at a power failure", setting=f"{setting} = off")
        return None

    def before_upgrade(self, connection: Connection, version: str) -> None:
        """Its administrator makes the backups; the upgrade is one transaction."""
        _log.info("The tables are upgraded", version=version)

    def guard(self, engine: Engine) -> None:
        """PostgreSQL reports a commit that it cannot keep."""

    def verify(self) -> None:
        """PostgreSQL checks what it reads."""

    def contains(self, column: Mapped[str], part: str) -> ColumnElement[bool]:
        return column.icontains(part, autoescape=True)

    def temporary(self, error: DBAPIError) -> StorageError | None:
        """The kinds of error that may be over later, in our words; None for any other."""
        code = getattr(error.orig, "sqlstate", None)
        if not (error.connection_invalidated or code is None or code.startswith(_TEMPORARY)):
            return None
        full = code == "53100"
        advice = "free some space on its disk" if full else "check that it runs and accepts this user"
        return StorageError(f"{self.name} cannot be used now ({_first_line(error)}): {advice}", full=full)

    def corrupt(self, finding: str) -> CorruptDatabaseError:
        return CorruptDatabaseError(
            f"{self.name} cannot be used ({finding}). Restore a backup of it, or name an empty database: "
            "the list of jobs is then rebuilt from the run directories"
        )

    def hold(self, engine: Engine) -> None:
        """Be the only server of this database while connected. Raises CorruptDatabaseError where another one is."""
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            connection.exec_driver_sql(f"SELECT pg_advisory_lock({_SERVER})")  # waits for one that is just ending
        except DBAPIError as error:
            connection.close()
            if getattr(error.orig, "sqlstate", None) != _LOCK_TIMEOUT:
                raise
            raise CorruptDatabaseError(
                f"{self.name} is in use by another server: stop it, or give each server a database of its own"
            ) from error
        self._server_lock = connection

    def release(self) -> None:
        if self._server_lock is not None:
            self._server_lock.invalidate()  # closes the connection, which gives the lock back
            self._server_lock.close()
            self._server_lock = None


def _widen_integers() -> None:
    """Integers have 64 bits, as in SQLite: steps and offsets may exceed 32."""
    for table in SQLModel.metadata.tables.values():
        for column in table.columns:
            if type(column.type) is Integer:
                column.type = Integer().with_variant(BigInteger(), "postgresql")


def _on_connect(connection: Any, _: Any) -> None:
    with connection.cursor() as cursor:
        for name, value in _SESSION.items():
            cursor.execute("SELECT set_config(%s, %s, false)", (name, value))
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
    connection.commit()


def _clean_parameters(
    _connection: Connection, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool
) -> tuple[str, Any]:
    """PostgreSQL stores no NUL and no surrogate in a text; SQLite does, and jobs write such texts."""
    if isinstance(parameters, Mapping):
        return statement, {name: _clean(value) for name, value in parameters.items()}
    if isinstance(parameters, list):
        return statement, [{name: _clean(value) for name, value in row.items()} for row in parameters]
    return statement, parameters


def _clean(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if "\0" in value:
        value = value.replace("\0", "\ufffd")
    return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _to_json(value: Any) -> str:
    return json.dumps(_clean_json(value))


def _clean_json(value: Any) -> Any:
    match value:
        case dict():
            return {_clean(key): _clean_json(each) for key, each in value.items()}
        case list() | tuple():
            return [_clean_json(each) for each in value]
        case float() if not math.isfinite(value):
            return None
    return _clean(value)


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).partition("\n")[0].strip()
