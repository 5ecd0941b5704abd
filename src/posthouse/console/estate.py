"""Estate: the services that are looked at. Nothing is made by looking, and what is wrong with one does not hide the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from posthouse.app import App, apps_of
from posthouse.service import Service


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with one service, and what to do."""

    service: str
    what: str
    do: str


class Estate:
    """Some services, given one by one or as Apps, and what is known to be wrong with others."""

    def __init__(self, *apps_or_services: App | Service, problems: Iterable[Problem] = ()) -> None:
        given = [one.services if isinstance(one, App) else (one,) for one in apps_or_services]
        self.services: Sequence[Service] = list({id(one): one for some in given for one in some}.values())
        self.problems: Sequence[Problem] = list(problems)

    async def aclose(self) -> None:
        """Close the stores that were opened."""
        for app in apps_of(self.services):
            await app.aclose()
