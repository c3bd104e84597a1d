"""All tables and indexes, as before the first release."""

from alembic import op

revision = "0016"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = (
    """CREATE TABLE experiment (
        id VARCHAR NOT NULL PRIMARY KEY, number INTEGER NOT NULL UNIQUE, idempotency_key VARCHAR UNIQUE,
        name VARCHAR NOT NULL, title VARCHAR NOT NULL, command VARCHAR, definition JSON NOT NULL,
        machine JSON NOT NULL, notes JSON NOT NULL, created_at FLOAT NOT NULL, owner VARCHAR, request_digest VARCHAR
    )""",
    """CREATE TABLE job (
        id VARCHAR NOT NULL PRIMARY KEY, number INTEGER NOT NULL UNIQUE, version INTEGER NOT NULL,
        idempotency_key VARCHAR UNIQUE, name VARCHAR NOT NULL, priority INTEGER NOT NULL,
        max_failures INTEGER NOT NULL, state VARCHAR(16) NOT NULL, intent VARCHAR(16) NOT NULL, run INTEGER NOT NULL,
        devices JSON NOT NULL, queue_position INTEGER, waiting_for VARCHAR, journal_offset INTEGER NOT NULL,
        attempt INTEGER NOT NULL, world_size INTEGER, restarts INTEGER NOT NULL, phase VARCHAR,
        epoch INTEGER, epochs INTEGER, step INTEGER, steps INTEGER, steps_per_second FLOAT, progress FLOAT,
        eta_seconds FLOAT, snapshot_step INTEGER, goodput FLOAT, notice VARCHAR, outcome JSON, next_try_at FLOAT,
        created_at FLOAT NOT NULL, started_at FLOAT, ended_at FLOAT,
        experiment_id VARCHAR REFERENCES experiment (id), trial JSON DEFAULT '{}' NOT NULL,
        rewind JSON DEFAULT '{}' NOT NULL, spec JSON DEFAULT '{}' NOT NULL, checkpoints JSON DEFAULT '[]' NOT NULL,
        estimated_step INTEGER, estimated_epoch INTEGER, owner VARCHAR, request_digest VARCHAR,
        launch_number INTEGER DEFAULT '0' NOT NULL, slurm JSON, estimated_start_at FLOAT, displaced JSON,
        wanted_devices JSON, preemptions INTEGER DEFAULT '0' NOT NULL, devices_since FLOAT,
        can_resize BOOLEAN DEFAULT 0 NOT NULL, snapshot_at FLOAT, parallel INTEGER, allocated_at FLOAT,
        tags VARCHAR DEFAULT '' NOT NULL, note VARCHAR DEFAULT '' NOT NULL, archived_at FLOAT, seen_at FLOAT,
        stalled JSON, last_keeper JSON DEFAULT '{}' NOT NULL, device_check JSON
    )""",
    """CREATE TABLE attempt (
        job_id VARCHAR NOT NULL, number INTEGER NOT NULL, run INTEGER NOT NULL,
        started_at FLOAT NOT NULL, ranks_running_at FLOAT, ended_at FLOAT, outcome JSON,
        resumed_from_step INTEGER, last_step INTEGER, snapshot_step INTEGER, world_size INTEGER NOT NULL,
        devices JSON NOT NULL, next_try_at FLOAT, reason VARCHAR, faults JSON DEFAULT '[]' NOT NULL,
        saving_seconds FLOAT, resumed_from_path VARCHAR, stalls JSON DEFAULT '[]' NOT NULL,
        detail JSON DEFAULT '{}' NOT NULL,
        PRIMARY KEY (job_id, number), FOREIGN KEY(job_id) REFERENCES job (id) ON DELETE CASCADE
    )""",
    """CREATE TABLE event (
        id INTEGER NOT NULL PRIMARY KEY, job_id VARCHAR NOT NULL, at FLOAT NOT NULL, kind VARCHAR NOT NULL,
        from_state VARCHAR, to_state VARCHAR, reason VARCHAR NOT NULL, owner VARCHAR
    )""",
    "CREATE TABLE counter (name VARCHAR NOT NULL PRIMARY KEY, value INTEGER NOT NULL)",
    """CREATE TABLE access_token (
        id VARCHAR NOT NULL PRIMARY KEY, digest VARCHAR NOT NULL UNIQUE, person VARCHAR NOT NULL,
        scope VARCHAR NOT NULL, note VARCHAR NOT NULL, created_by VARCHAR NOT NULL, created_at FLOAT NOT NULL,
        expires_at FLOAT, revoked_at FLOAT, last_used_at FLOAT
    )""",
    """CREATE TABLE browser_session (
        digest VARCHAR NOT NULL PRIMARY KEY, token_digest VARCHAR NOT NULL, created_at FLOAT NOT NULL,
        expires_at FLOAT NOT NULL, address VARCHAR NOT NULL
    )""",
    """CREATE TABLE bundle_upload (
        bundle_id VARCHAR NOT NULL, person VARCHAR NOT NULL, at FLOAT NOT NULL, PRIMARY KEY (bundle_id, person)
    )""",
    """CREATE TABLE audit (
        id INTEGER NOT NULL PRIMARY KEY, at FLOAT NOT NULL, person VARCHAR, token_id VARCHAR, via VARCHAR NOT NULL,
        address VARCHAR NOT NULL, action VARCHAR NOT NULL, target VARCHAR NOT NULL, status INTEGER NOT NULL,
        detail VARCHAR NOT NULL
    )""",
    "CREATE TABLE owner_usage (owner VARCHAR NOT NULL PRIMARY KEY, slot_seconds FLOAT NOT NULL, at FLOAT NOT NULL)",
    """CREATE TABLE device_state (
        device VARCHAR NOT NULL PRIMARY KEY, reason VARCHAR NOT NULL, at FLOAT NOT NULL, "by" VARCHAR,
        acknowledged JSON DEFAULT '[]' NOT NULL
    )""",
)
_COUNTERS = "INSERT INTO counter VALUES ('number', 0), ('version', 0), ('experiment', 0)"
_INDEXES = {
    "ix_access_token_person": "access_token (person)",
    "ix_audit_at": "audit (at)",
    "ix_audit_person": "audit (person)",
    "ix_browser_session_token_digest": "browser_session (token_digest)",
    "ix_event_job_id": "event (job_id)",
    "ix_event_kind": "event (kind)",
    "ix_experiment_owner": "experiment (owner)",
    "ix_job_version": "job (version)",
    "ix_job_queue": "job (state, priority, number)",
    # lists, and questions about the present, read no rows of other jobs
    "ix_job_number": "job (number, state, owner, experiment_id, name)",
    "ix_job_state": "job (state, number, owner, experiment_id, name)",
    "ix_job_owner": "job (owner, number, state, experiment_id, name)",
    "ix_job_experiment_id": "job (experiment_id, number, state, owner, name)",
    "ix_job_name": "job (name, number, state, owner, experiment_id)",
    "ix_job_owner_state": "job (owner, state, number)",
    "ix_job_intent": "job (intent, state)",
    "ix_job_queue_position": "job (queue_position) WHERE queue_position IS NOT NULL",
    "ix_job_unfinished": "job (started_at) WHERE ended_at IS NULL AND started_at IS NOT NULL",
    "ix_job_unseen": "job (state, ended_at, owner) WHERE state = 'failed' AND seen_at IS NULL AND archived_at IS NULL",
    "ix_job_held": "job (number, owner) WHERE state = 'queued' AND intent = 'hold'",
    "ix_job_unplaced": "job (number, owner) WHERE state = 'queued' AND intent <> 'hold' AND queue_position IS NULL",
    "ix_job_done": "job (experiment_id, ended_at, owner)"
    " WHERE ended_at IS NOT NULL AND archived_at IS NULL AND (state <> 'failed' OR seen_at IS NOT NULL)",
    "ix_job_tagged": "job (number, tags, state, owner, experiment_id, name) WHERE tags <> ''",
    "ix_job_archived": "job (number, state, owner, experiment_id, name) WHERE archived_at IS NOT NULL",
    "ix_job_checked": "job (state, number) WHERE device_check <> 'null'",
}


def upgrade() -> None:
    for statement in (*_TABLES, _COUNTERS):
        op.execute(statement)
    for name, columns in _INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON {columns}")
