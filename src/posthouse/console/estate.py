"""Estate: the services that the console looks at. Whatever is wrong with one of them is a `Problem`, and the rest answers."""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar, cast

import msgspec

from posthouse.app import App, app_of
from posthouse.console.asking import Refusal
from posthouse.errors import ConfigurationError, PosthouseError, StoreOutdated, did_you_mean
from posthouse.outage import span
from posthouse.redaction import redacted, words_of
from posthouse.service import Service

log = logging.getLogger("posthouse.console")

T = TypeVar("T")

Load = Callable[[], Sequence[Service]]
"""Finds services, as by importing their module; ConfigurationError where that cannot be done."""

WITHIN = 5.0
"""Seconds that a store has to answer one question."""
DOUBTED_WITHIN = 1.0
"""Seconds that one has which did not answer the last time, to show that it is there again."""
LOADED_AGAIN = 5.0
"""Seconds from one attempt to import what could not be imported to the next."""
CLOSED_WITHIN = 3.0

UPGRADE = "bring its tables up to date: `posthouse db upgrade TARGET`"
AWAY = "is the server up, and the URL right? It is asked again with every look"
SLOW = "look at what the database does; ask for less, or try again"
IMPORT = "mend it: it is imported again every few seconds, without a restart of the console"
DOUBLE = "give each service a name of its own, or run one console for each"
BROKEN = "the log of the console has the whole of it"


class Problem(msgspec.Struct, frozen=True):
    """What keeps one of the services from being shown, and what to do."""

    service: str
    what: str
    do: str


class Told(msgspec.Struct, Generic[T]):
    """What the stores answered, by the name of their App (`app.opened.name`), and why others did not."""

    found: dict[str, T]
    problems: list[Problem]


class Part(Protocol):
    """What belongs to an estate and ends with it."""

    def __init__(self, estate: Estate) -> None: ...

    async def aclose(self) -> None: ...


P = TypeVar("P", bound=Part)


class Estate:
    """Services by name, each opened to look at only: nothing is made, no set-up function runs.

    `loading`: services that are yet to be found, by what they were called, as `module:service`; what cannot be imported is tried
    again. An App that its owner opened or runs stays open when this is closed. All of it is used on one event loop.
    """

    def __init__(self, *given: App | Service, loading: Mapping[str, Load] | None = None) -> None:
        self._services: dict[str, Service] = {}
        self._loading = dict(loading or {})
        self._unloaded: dict[str, Problem] = {}
        self._loaded_at = float("-inf")
        self._looked: set[int] = set()
        """Apps whose tables were seen, by the identity of what is opened."""
        self._doubted: set[int] = set()
        """Those that did not answer in time."""
        self._lock = asyncio.Lock()
        self._parts: dict[type, Part] = {}
        problems = [problem for one in given if (problem := self._add(one.services if isinstance(one, App) else [one]))]
        if problems:
            raise ConfigurationError(*(problem.what for problem in problems))

    # What there is.

    @property
    def services(self) -> Mapping[str, Service]:
        """All that could be found, by name."""
        return self._services

    @property
    def apps(self) -> Sequence[App]:
        """Those that run them, each once: one store each."""
        return list({id(app): app for app in map(app_of, self._services.values())}.values())

    @property
    def problems(self) -> Sequence[Problem]:
        """Of what could not be found at all."""
        return list(self._unloaded.values())

    def service(self, name: str) -> Service:
        """The service of this name, or the first of the App that has it; Refusal 404, with the nearest names, where there is
        none."""
        of_an_app = (app.services[0] for app in self.apps if app.opened.name == name)
        if (found := self._services.get(name) or next(of_an_app, None)) is None:
            raise Refusal(404, f"No service is called {name!r} here.{did_you_mean(name, self._services)}")
        return found

    def app(self, name: str) -> App:
        """The App that runs the service of this name, or that has this name itself; Refusal 404 where there is none."""
        return app_of(self.service(name))

    def part(self, kind: type[P]) -> P:
        """The one of its kind that this estate has; made at first use."""
        return cast("P", self._parts[kind] if kind in self._parts else self._parts.setdefault(kind, kind(self)))

    # Finding and closing. Stores are opened when they are asked, so that one which hangs keeps nobody waiting.

    async def aclose(self) -> None:
        """Close what was opened here, parts first."""
        for part in self._parts.values():
            await part.aclose()
        mine = [app for app in self.apps if not (app.opened.ready or app.opened.runs)]
        await asyncio.gather(*(_closed(app) for app in mine))
        self._looked.clear()

    async def load(self) -> None:
        """Find what could not be found yet, every few seconds; in a thread, as a module may take its time."""
        if not self._loading or time.monotonic() - self._loaded_at < LOADED_AGAIN:
            return
        async with self._lock:
            if time.monotonic() - self._loaded_at < LOADED_AGAIN:
                return
            self._loaded_at = time.monotonic()
            for name, load in list(self._loading.items()):
                importlib.invalidate_caches()
                try:
                    problem = self._add(await asyncio.to_thread(load), name)
                except Exception as error:  # whatever a module of theirs does
                    problem = Problem(name, redacted(str(error)) or type(error).__name__, IMPORT)
                if problem is None:
                    del self._loading[name]
                    self._unloaded.pop(name, None)
                elif self._unloaded.get(name) != problem:
                    log.warning("%s is not shown: %s", name, problem.what)
                    self._unloaded[name] = problem

    def _add(self, services: Sequence[Service], called: str = "") -> Problem | None:
        """Take services up; None, or why not: two of one name could not be told apart."""
        for service in services:
            if self._services.setdefault(service.name, service) is not service:
                return Problem(called or service.name, f"two services are called {service.name!r}", DOUBLE)
        return None

    # Asking.

    async def each(
        self, ask: Callable[[App], Awaitable[T]], services: Iterable[str] | None = None, *, within: float = WITHIN
    ) -> Told[T]:
        """Ask the store of each App at once, or of those that run some services. Who does not answer within so many seconds, is
        away, or has other tables, is a problem. A Refusal is raised."""
        await self.load()
        apps = self.apps if services is None else list({id(app): app for app in map(self.app, services)}.values())

        async def seen(app: App) -> T:
            await self._seen(app, within)
            return await ask(app)

        answers = await asyncio.gather(*(self._answer(app, seen, within) for app in apps))
        return self._told(apps, answers, self.problems if services is None else [])

    @staticmethod
    def _told(apps: Sequence[App], answers: Sequence[tuple[T] | Problem], problems: Sequence[Problem]) -> Told[T]:
        told: Told[T] = Told({}, list(problems))
        for app, answer in zip(apps, answers, strict=True):
            if isinstance(answer, Problem):
                told.problems.append(answer)
            else:
                told.found[app.opened.name] = answer[0]
        return told

    async def examined(self, ask: Callable[[App], Awaitable[T]], *, within: float) -> Told[T]:
        """As `each`, of stores that may be away or older: whoever asks says that himself."""
        await self.load()
        apps = self.apps
        answers = await asyncio.gather(*(self._answer(app, ask, within) for app in apps))
        return self._told(apps, answers, [])

    async def one(self, service: str, ask: Callable[[App], Awaitable[T]], *, within: float = WITHIN) -> T:
        """The answer of the store of one service; Refusal 404 where there is no such service, 503 where it cannot answer."""
        told = await self.each(ask, [service], within=within)
        for problem in told.problems:
            raise Refusal(503, f"{problem.service}: {problem.what}", problem.do)
        return next(iter(told.found.values()))

    async def _answer(self, app: App, ask: Callable[[App], Awaitable[T]], within: float) -> tuple[T] | Problem:
        name = app.opened.name
        try:
            async with asyncio.timeout(within):
                answer = (await ask(app),)
            self._doubted.discard(id(app))
            return answer
        except Refusal:
            raise
        except StoreOutdated as error:
            self._looked.discard(id(app.opened))
            return Problem(name, words_of(error), UPGRADE)
        except TimeoutError:
            doubted = id(app) in self._doubted
            self._doubted.add(id(app))
            waited = DOUBTED_WITHIN if doubted else within
            return Problem(name, f"its store gave no answer within {span(waited)}", AWAY if doubted else SLOW)
        except (PosthouseError, OSError) as error:
            self._looked.discard(id(app.opened))
            return Problem(name, words_of(error), AWAY)
        except Exception as error:
            log.exception("a question to %s failed", name)
            return Problem(name, f"it cannot be shown: {type(error).__name__}", BROKEN)

    async def _seen(self, app: App, within: float) -> None:
        """Its tables are there. Who was silent must show in short time that it is not any more."""
        if id(app) in self._doubted or id(app.opened) not in self._looked:
            async with asyncio.timeout(DOUBTED_WITHIN if id(app) in self._doubted else within):
                await app.opened.look()
            self._looked.add(id(app.opened))


async def _closed(app: App) -> None:
    try:
        async with asyncio.timeout(CLOSED_WITHIN):
            await app.aclose()
    except (PosthouseError, OSError, TimeoutError) as error:
        log.warning("%s could not be closed: %s", app.services[0].name, words_of(error))
