"""Experiments, and the jobs that belong to them."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "experiment",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("number", sa.Integer(), nullable=False, unique=True),
        sa.Column("idempotency_key", sa.String(), unique=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("command", sa.String()),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("machine", sa.JSON(), nullable=False),
        sa.Column("notes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.execute(sa.text("INSERT INTO sequence (name, value) VALUES ('experiment', 0)"))
    op.execute(sa.text("ALTER TABLE job ADD COLUMN experiment_id VARCHAR REFERENCES experiment (id)"))
    op.add_column("job", sa.Column("cell", sa.JSON(), nullable=False, server_default="{}"))
    op.add_column("job", sa.Column("follows", sa.String()))
    op.create_index("ix_job_experiment_id", "job", ["experiment_id"])
