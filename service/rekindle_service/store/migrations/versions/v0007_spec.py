"""What was requested of a job becomes one JSON value, and columns get the names of what they hold."""

import json

import sqlalchemy as sa
from alembic import op

from rekindle.contract.job import JobSpec

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_PLAIN = ("kind", "target", "python", "device", "min_ranks", "max_ranks", "hang_timeout", "time_limit", "warm")
_JSON = ("args", "code", "env", "after", "cadence")
_RENAMED = (("job", "cell", "trial"), ("job", "follows", "run_after"), ("attempt", "durable_step", "snapshot_step"))


def upgrade() -> None:
    op.add_column("job", sa.Column("spec", sa.JSON(), nullable=False, server_default="{}"))
    connection = op.get_bind()
    for row in connection.execute(sa.text("SELECT * FROM job")).mappings().all():
        values = {**row, **{name: json.loads(row[name]) for name in _JSON}, "warm": bool(row["warm"])}
        spec = json.dumps(JobSpec.from_json(values).to_json())
        connection.execute(sa.text("UPDATE job SET spec = :spec WHERE id = :id"), {"spec": spec, "id": row["id"]})
    for name in (*_PLAIN, *_JSON):
        op.drop_column("job", name)
    for table, old, new in _RENAMED:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    op.rename_table("sequence", "counter")
    op.execute("UPDATE counter SET name = 'delivered:' || substr(name, 6) WHERE name LIKE 'told:%'")
