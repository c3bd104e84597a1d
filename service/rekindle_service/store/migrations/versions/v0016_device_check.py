"""What is known of an open device check; the replays themselves are jobs."""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE job ADD COLUMN device_check JSON")
    op.execute("CREATE INDEX ix_job_checked ON job (state, number) WHERE device_check <> 'null'")
