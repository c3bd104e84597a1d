"""Seconds for which the training of an attempt waited for snapshots."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempt", sa.Column("saving_seconds", sa.Float(), nullable=True))
