"""When an attempt made no progress, and why a running job makes none now."""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE job ADD COLUMN stalled JSON")
    op.execute("ALTER TABLE attempt ADD COLUMN stalls JSON DEFAULT '[]' NOT NULL")
