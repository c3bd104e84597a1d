"""The tables of version 0.1.0."""

from alembic import op

revision = "0006"
down_revision = None
branch_labels = None
depends_on = None

_STATEMENTS = (
    """CREATE TABLE experiment (
        id VARCHAR NOT NULL PRIMARY KEY, number INTEGER NOT NULL UNIQUE, idempotency_key VARCHAR UNIQUE,
        name VARCHAR NOT NULL, title VARCHAR NOT NULL, command VARCHAR, definition JSON NOT NULL,
        machine JSON NOT NULL, notes JSON NOT NULL, created_at FLOAT NOT NULL
    )""",
    """CREATE TABLE job (
        id VARCHAR NOT NULL PRIMARY KEY, number INTEGER NOT NULL UNIQUE, version INTEGER NOT NULL,
        idempotency_key VARCHAR UNIQUE, name VARCHAR NOT NULL, kind VARCHAR(16) NOT NULL, target VARCHAR NOT NULL,
        args JSON NOT NULL, env JSON NOT NULL, python VARCHAR NOT NULL, device VARCHAR NOT NULL,
        min_ranks INTEGER NOT NULL, max_ranks INTEGER NOT NULL, priority INTEGER NOT NULL, "after" JSON NOT NULL,
        max_failures INTEGER NOT NULL, hang_timeout FLOAT, time_limit FLOAT, cadence JSON NOT NULL,
        warm BOOLEAN NOT NULL, state VARCHAR(16) NOT NULL, intent VARCHAR(16) NOT NULL, run INTEGER NOT NULL,
        devices JSON NOT NULL, queue_position INTEGER, waiting_for VARCHAR, journal_offset INTEGER NOT NULL,
        attempt INTEGER NOT NULL, world_size INTEGER, restarts INTEGER NOT NULL, phase VARCHAR,
        epoch INTEGER, epochs INTEGER, step INTEGER, steps INTEGER, steps_per_second FLOAT, progress FLOAT,
        eta_seconds FLOAT, snapshot_step INTEGER, goodput FLOAT, notice VARCHAR, outcome JSON, next_try_at FLOAT,
        created_at FLOAT NOT NULL, started_at FLOAT, ended_at FLOAT,
        experiment_id VARCHAR REFERENCES experiment (id), cell JSON DEFAULT '{}' NOT NULL, follows VARCHAR,
        code JSON DEFAULT '{}' NOT NULL, rewind JSON DEFAULT '{}' NOT NULL
    )""",
    """CREATE TABLE attempt (
        job_id VARCHAR NOT NULL, number INTEGER NOT NULL, run INTEGER NOT NULL,
        started_at FLOAT NOT NULL, ranks_running_at FLOAT, ended_at FLOAT, outcome JSON,
        resumed_from_step INTEGER, last_step INTEGER, durable_step INTEGER, world_size INTEGER NOT NULL,
        devices JSON NOT NULL, next_try_at FLOAT, reason VARCHAR, faults JSON DEFAULT '[]' NOT NULL,
        saving_seconds FLOAT, PRIMARY KEY (job_id, number), FOREIGN KEY(job_id) REFERENCES job (id) ON DELETE CASCADE
    )""",
    """CREATE TABLE event (
        id INTEGER NOT NULL PRIMARY KEY, job_id VARCHAR NOT NULL, at FLOAT NOT NULL, kind VARCHAR NOT NULL,
        from_state VARCHAR, to_state VARCHAR, reason VARCHAR NOT NULL
    )""",
    "CREATE TABLE sequence (name VARCHAR NOT NULL PRIMARY KEY, value INTEGER NOT NULL)",
    "INSERT INTO sequence VALUES ('number', 0), ('version', 0), ('starts', 0), ('experiment', 0)",
    "CREATE INDEX ix_job_version ON job (version)",
    "CREATE INDEX ix_job_queue ON job (state, priority, number)",
    "CREATE INDEX ix_job_experiment_id ON job (experiment_id)",
    "CREATE INDEX ix_event_job_id ON event (job_id)",
    "CREATE INDEX ix_event_kind ON event (kind)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
