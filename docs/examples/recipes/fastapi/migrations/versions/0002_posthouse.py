"""The tables of the outbox and the inbox."""

from posthouse.alembic import downgrade, upgrade  # noqa: F401

revision = "0002"
down_revision = "0001"
