"""Run by alembic inside ``migrations.upgrade``: migrates over the caller's connection, in its transaction."""

from alembic import context
from sqlmodel import SQLModel

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    render_as_batch=True,  # SQLite cannot alter a column in place
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
