"""Orders and parcels."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table("orders", sa.Column("order_id", sa.String, primary_key=True))
    op.create_table(
        "parcels",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("order_id", sa.String, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("parcels")
    op.drop_table("orders")
