"""Fair shares, preemption, elastic jobs and devices that are not used."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job", sa.Column("estimated_start_at", sa.Float()))
    op.add_column("job", sa.Column("displaced", sa.JSON()))
    op.add_column("job", sa.Column("wanted_devices", sa.JSON()))
    op.add_column("job", sa.Column("preemptions", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("job", sa.Column("devices_since", sa.Float()))
    op.add_column("job", sa.Column("can_resize", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("job", sa.Column("snapshot_at", sa.Float()))
    op.add_column("job", sa.Column("parallel", sa.Integer()))
    op.add_column("job", sa.Column("allocated_at", sa.Float()))
    _index_jobs()
    op.create_table(
        "owner_usage",
        sa.Column("owner", sa.String(), primary_key=True),
        sa.Column("slot_seconds", sa.Float(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
    )
    op.create_table(
        "device_state",
        sa.Column("device", sa.String(), primary_key=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("by", sa.String()),
        sa.Column("acknowledged", sa.JSON(), nullable=False, server_default="[]"),
    )


def _index_jobs() -> None:
    """Lists, and questions about the present, read no rows of other jobs."""
    listed = ["state", "owner", "experiment_id", "name"]
    for column in ("owner", "experiment_id"):
        op.drop_index(f"ix_job_{column}", "job")
    op.create_index("ix_job_number", "job", ["number", *listed])
    for column in listed:
        op.create_index(f"ix_job_{column}", "job", [column, "number", *[each for each in listed if each != column]])
    op.create_index("ix_job_owner_state", "job", ["owner", "state", "number"])
    op.create_index("ix_job_intent", "job", ["intent", "state"])
    for column, condition in (
        ("queue_position", "queue_position IS NOT NULL"),
        ("started_at", "ended_at IS NULL AND started_at IS NOT NULL"),
    ):
        where = sa.text(condition)
        name = "ix_job_unfinished" if column == "started_at" else f"ix_job_{column}"
        op.create_index(name, "job", [column], sqlite_where=where, postgresql_where=where)
