"""Tags, notes, the archive, and which failures were seen."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_INDEXES = {
    "unseen": (("state", "ended_at", "owner"), "state = 'failed' AND seen_at IS NULL AND archived_at IS NULL"),
    "held": (("number", "owner"), "state = 'queued' AND intent = 'hold'"),
    "unplaced": (("number", "owner"), "state = 'queued' AND intent <> 'hold' AND queue_position IS NULL"),
    "done": (
        ("experiment_id", "ended_at", "owner"),
        "ended_at IS NOT NULL AND archived_at IS NULL AND (state <> 'failed' OR seen_at IS NOT NULL)",
    ),
    "tagged": (("number", "tags", "state", "owner", "experiment_id", "name"), "tags <> ''"),
    "archived": (("number", "state", "owner", "experiment_id", "name"), "archived_at IS NOT NULL"),
}


def upgrade() -> None:
    op.add_column("job", sa.Column("tags", sa.String(), nullable=False, server_default=""))
    op.add_column("job", sa.Column("note", sa.String(), nullable=False, server_default=""))
    op.add_column("job", sa.Column("archived_at", sa.Float()))
    op.add_column("job", sa.Column("seen_at", sa.Float()))
    failures_of_the_past_are_no_news = "UPDATE job SET seen_at = coalesce(ended_at, created_at) WHERE state = 'failed'"
    op.execute(failures_of_the_past_are_no_news)
    for name, (columns, condition) in _INDEXES.items():
        where = sa.text(condition)
        op.create_index(f"ix_job_{name}", "job", list(columns), sqlite_where=where, postgresql_where=where)
