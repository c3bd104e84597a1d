"""First tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _job()
    _attempt()
    _event()
    sequence = op.create_table(
        "sequence",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("value", sa.Integer(), nullable=False),
    )
    op.bulk_insert(sequence, [{"name": name, "value": 0} for name in ("number", "version", "starts")])


def _job() -> None:
    op.create_table("job", *_job_request(), *_job_place(), *_job_progress())
    op.create_index("ix_job_version", "job", ["version"])
    op.create_index("ix_job_queue", "job", ["state", "priority", "number"])


def _job_request() -> list[sa.Column[object]]:
    return [
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("number", sa.Integer(), nullable=False, unique=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("idempotency_key", sa.String(), unique=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("args", sa.JSON(), nullable=False),
        sa.Column("env", sa.JSON(), nullable=False),
        sa.Column("python", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("min_ranks", sa.Integer(), nullable=False),
        sa.Column("max_ranks", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("after", sa.JSON(), nullable=False),
        sa.Column("max_failures", sa.Integer(), nullable=False),
        sa.Column("hang_timeout", sa.Float()),
        sa.Column("time_limit", sa.Float()),
        sa.Column("cadence", sa.JSON(), nullable=False),
        sa.Column("warm", sa.Boolean(), nullable=False),
    ]


def _job_place() -> list[sa.Column[object]]:
    return [
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("intent", sa.String(16), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("devices", sa.JSON(), nullable=False),
        sa.Column("queue_position", sa.Integer()),
        sa.Column("waiting_for", sa.String()),
        sa.Column("journal_offset", sa.Integer(), nullable=False),
    ]


def _job_progress() -> list[sa.Column[object]]:
    return [
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("world_size", sa.Integer()),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String()),
        sa.Column("epoch", sa.Integer()),
        sa.Column("epochs", sa.Integer()),
        sa.Column("step", sa.Integer()),
        sa.Column("steps", sa.Integer()),
        sa.Column("steps_per_second", sa.Float()),
        sa.Column("progress", sa.Float()),
        sa.Column("eta_seconds", sa.Float()),
        sa.Column("snapshot_step", sa.Integer()),
        sa.Column("goodput", sa.Float()),
        sa.Column("notice", sa.String()),
        sa.Column("outcome", sa.JSON()),
        sa.Column("next_try_at", sa.Float()),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float()),
        sa.Column("ended_at", sa.Float()),
    ]


def _attempt() -> None:
    op.create_table(
        "attempt",
        sa.Column("job_id", sa.String(), sa.ForeignKey("job.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("ranks_running_at", sa.Float()),
        sa.Column("ended_at", sa.Float()),
        sa.Column("outcome", sa.JSON()),
        sa.Column("resumed_from_step", sa.Integer()),
        sa.Column("last_step", sa.Integer()),
        sa.Column("durable_step", sa.Integer()),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("devices", sa.JSON(), nullable=False),
        sa.Column("next_try_at", sa.Float()),
        sa.Column("reason", sa.String()),
    )


def _event() -> None:
    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("from_state", sa.String()),
        sa.Column("to_state", sa.String()),
        sa.Column("reason", sa.String(), nullable=False),
    )
    op.create_index("ix_event_job_id", "event", ["job_id"])
    op.create_index("ix_event_kind", "event", ["kind"])
