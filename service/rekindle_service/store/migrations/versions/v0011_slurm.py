"""Jobs that run on Slurm: which of its jobs is the latest, and what Slurm says of it."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job", sa.Column("launch_number", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("job", sa.Column("slurm", sa.JSON()))
