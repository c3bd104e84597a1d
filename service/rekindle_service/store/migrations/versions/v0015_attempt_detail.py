"""Rows hold all that the journal says. What rows of before lack comes from the journals (``scheduler.recovery``)."""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE attempt ADD COLUMN detail JSON DEFAULT '{}' NOT NULL")
    op.execute("ALTER TABLE job ADD COLUMN last_keeper JSON DEFAULT '{}' NOT NULL")
