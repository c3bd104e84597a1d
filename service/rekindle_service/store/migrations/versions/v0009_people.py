"""People: who owns a job, tokens, sessions of browsers, uploads of bundles, and the audit log."""

import sqlalchemy as sa
from alembic import op

from rekindle_service.config.unix_users import server_user

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("job", "experiment"):
        op.add_column(table, sa.Column("owner", sa.String()))
        op.create_index(f"ix_{table}_owner", table, ["owner"])
        # until now there was one person: the user who runs the server
        op.execute(sa.update(sa.table(table, sa.column("owner"))).values(owner=server_user()))
    op.add_column("event", sa.Column("owner", sa.String()))
    _create_access_tables()
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("person", sa.String()),
        sa.Column("token_id", sa.String()),
        sa.Column("via", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_index("ix_audit_person", "audit", ["person"])


def _create_access_tables() -> None:
    op.create_table(
        "access_token",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("digest", sa.String(), nullable=False, unique=True),
        sa.Column("person", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float()),
        sa.Column("revoked_at", sa.Float()),
        sa.Column("last_used_at", sa.Float()),
    )
    op.create_index("ix_access_token_person", "access_token", ["person"])
    op.create_table(
        "browser_session",
        sa.Column("digest", sa.String(), primary_key=True),
        sa.Column("token_digest", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
    )
    op.create_index("ix_browser_session_token_digest", "browser_session", ["token_digest"])
    op.create_table(
        "bundle_upload",
        sa.Column("bundle_id", sa.String(), primary_key=True),
        sa.Column("person", sa.String(), primary_key=True),
        sa.Column("at", sa.Float(), nullable=False),
    )
