"""Separation: two roles on one database. One works for a single tenant at a time, the other carries the events of all."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.checks import Check, refusals
from posthouse.errors import ConfigurationError
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.isolation import open_way, path_findings, role_findings, table_findings
from posthouse.stores.postgres.schema import checking


class Separation:
    """The two sides of an isolated `PostgresStore`."""

    def __init__(self, application: Database, runtime: Database) -> None:
        self.application = application
        self.runtime = runtime
        self._held = False

    async def checks(self) -> Sequence[Check]:
        """Each way that is open from one tenant to another, or one check that is ok."""
        application, findings = await self.application.carry_out(role_findings("application"))
        runtime, found = await self.runtime.carry_out(role_findings("runtime"))
        findings += found
        findings += await self.runtime.carry_out(table_findings(application, runtime))
        findings += await self.runtime.carry_out(path_findings(application))
        if findings:
            return findings
        return [Check(name="isolation", found=f"{application!r} sees one tenant at a time, {runtime!r} carries all")]

    async def refuse(self) -> None:
        """ConfigurationError with every open way. Nothing is used before. Found in order once, it is not looked at again:
        the other side asks later, perhaps inside a transaction of this one."""
        if self._held:
            return
        shards = self.runtime.settings.shards
        places = [await side.carry_out(checking(shards)) for side in (self.application, self.runtime)]
        problems = refusals(await self.checks())
        if places[0].identity != places[1].identity:
            problems.append(
                open_way("the two URLs lead to different databases", "let runtime_url name the same one").sentence
            )
        if problems:
            raise ConfigurationError(*problems)
        self._held = True
