"""Faults that a user had injected into an attempt."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempt", sa.Column("faults", sa.JSON(), nullable=False, server_default="[]"))
