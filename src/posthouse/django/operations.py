"""What our migrations do."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.migrations import RunSQL

from posthouse.stores.postgres.scripts import drop_script, upgrade_script


class UpgradeStore(RunSQL):
    """Bring the tables of the store to what this release needs, in the schema that POSTHOUSE_SCHEMA names. On databases that are not
    PostgreSQL there is nothing to do: other stores make their tables themselves."""

    def __init__(self) -> None:
        schema: str = getattr(settings, "POSTHOUSE_SCHEMA", "posthouse")
        super().__init__(upgrade_script(schema), reverse_sql=drop_script(schema))

    def describe(self) -> str:
        return "Bring the tables of Posthouse's store up to date"

    def _run_sql(self, schema_editor: Any, sqls: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super()._run_sql(schema_editor, sqls)  # type: ignore[misc] # Django's own, which its stubs do not know
