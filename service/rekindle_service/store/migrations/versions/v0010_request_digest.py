"""The digest of the request that an idempotency key belongs to."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("job", "experiment"):
        op.add_column(table, sa.Column("request_digest", sa.String()))
