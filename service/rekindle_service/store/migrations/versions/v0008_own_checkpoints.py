"""What is learned of scripts that report nothing: their own checkpoints, and estimates from what they print."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job", sa.Column("checkpoints", sa.JSON(), nullable=False, server_default="[]"))
    op.add_column("job", sa.Column("estimated_step", sa.Integer()))
    op.add_column("job", sa.Column("estimated_epoch", sa.Integer()))
    op.add_column("attempt", sa.Column("resumed_from_path", sa.String()))
