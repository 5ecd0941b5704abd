"""The town's console for somebody who may only look, as an application of its own."""

from __future__ import annotations

from posthouse.console.access import Access, Who
from posthouse.console.application import console
from tests.integration.console.town import app as town


def who(scope: object) -> Who:
    return Who(name="rita", roles=frozenset(("reader",)))


app = console(town, access=Access(who=who))
