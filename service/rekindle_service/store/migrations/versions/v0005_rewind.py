"""The snapshot that a run is to begin from, where a person has chosen one."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job", sa.Column("rewind", sa.JSON(), nullable=False, server_default="{}"))
