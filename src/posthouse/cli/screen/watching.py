"""Watching: look, show, wait, until somebody ends it. What is away is said, and looked for again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Protocol

from posthouse.app import App, apps_of
from posthouse.cli.output import complain, say, stdout
from posthouse.cli.screen.drawing import Place, drawn
from posthouse.cli.screen.history import History, Look
from posthouse.cli.screen.model import screen_of
from posthouse.cli.screen.terminal import Terminal
from posthouse.clock import SystemClock
from posthouse.errors import BrokerUnavailable, PosthouseError, StoreFull, StoreUnavailable
from posthouse.redaction import redacted, words_of
from posthouse.service import Service
from posthouse.store import Gauges
from posthouse.watch.liveness import attendance
from posthouse.watch.standing import Standing
from posthouse.watch.status import status, timing_of

BROKER_WITHIN = 4.0
"""Seconds that a broker has for one answer: what the stores know is wanted most while it is away."""
LOOK_WITHIN = 15.0
"""Seconds that a look may take."""
REST = 4.0
"""After a look nobody looks for so many times as long as it took, so that it is a fifth of the time at most."""
LONGEST_REST = 10.0
"""Seconds; more only if it was asked for."""
CLOSE_WITHIN = 3.0
"""Seconds for connections to be closed at the end."""
TICK = 1.0
"""Seconds between two drawings while a look lasts: ages grow."""

AWAY = (StoreUnavailable, StoreFull, BrokerUnavailable, TimeoutError, OSError)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class View(Protocol):
    """Where looks are shown."""

    def taken(self) -> contextlib.AbstractContextManager[None]:
        """What shows them is ours for the block."""
        ...

    def looked(self, history: History) -> None:
        """A look has ended, well or not."""
        ...

    def passed(self, history: History) -> None:
        """Time has passed, or the size has changed."""
        ...

    def pause(self) -> None:
        """Ctrl-Z."""
        ...


async def watch(services: Sequence[Service], every: float, view: View, *, verbose: bool) -> None:
    """Look again and again, until SIGINT, SIGTERM, SIGHUP or SIGQUIT."""
    stop, drawing = asyncio.Event(), asyncio.Event()
    history = History()
    looking = Looking(services, verbose=verbose)
    with _signals(stop, drawing, view), _quiet():
        try:
            with view.taken():
                while not stop.is_set():
                    took = await _one(looking, history, view, stop, drawing)
                    if not stop.is_set():
                        view.looked(history)
                    await _until(stop, drawing, rest(every, took), lambda: view.passed(history))
        finally:
            with contextlib.suppress(*AWAY, PosthouseError):
                async with asyncio.timeout(CLOSE_WITHIN):
                    await looking.aclose()


def rest(every: float, took: float) -> float:
    """Seconds until the next look, after one that took so long."""
    return max(every, min(REST * took, LONGEST_REST))


class Looking:
    """Looks at services, one at a time. They are opened with the first."""

    def __init__(self, services: Sequence[Service], *, verbose: bool) -> None:
        self._services = services
        self._verbose = verbose
        self._opened = False
        self._clock = SystemClock()
        self._standing = Standing(apps_of(services))

    async def look(self, history: History) -> Look:
        """All figures of one moment; where something is not found again, with a closer look. Raises one of AWAY; any other PosthouseError before the first look has found something is
        what was asked for, and cannot be."""
        began = time.monotonic()
        apps = apps_of(self._services)
        gauges = {app.opened.name: await self._gauges(app) for app in apps}
        figures = await status(self._services, patience=BROKER_WITHIN)
        found = Look(
            began=began,
            ended=time.monotonic(),
            at=self._clock.now(),
            figures=figures,
            attended=await attendance(self._services, figures),
            gauges=gauges,
            unaccounted=await self._closer() if history.suspects(figures) and not figures.away else {},
            wake={app.opened.name: await app.store.wake() for app in apps},
            projections=[one for app in apps if not figures.away for one in await app.projections.status()],
            timing=await timing_of(self._services) if self._verbose else (),
        )
        self._opened = True
        return found

    async def _closer(self) -> Mapping[tuple[str, str], int]:
        """What is missing whatever moves."""
        return {
            (sample.labels["consumer"], sample.labels["topic"]): int(sample.value)
            for sample in await self._standing.samples()
            if sample.metric == "consumer_unaccounted" and isinstance(sample.value, float)
        }

    async def _gauges(self, app: App) -> Gauges:
        """They are asked for first: of several stores, the one that is away is named."""
        try:
            if not self._opened:
                await app.opened.look()
            return await app.store.gauges()
        except AWAY as error:
            raise StoreUnavailable(f"{app.opened.name} at {redacted(app.opened.ports.store_url)}: {error}") from error

    @property
    def expected(self) -> tuple[type[Exception], ...]:
        """What may come in the way of a look: once it was all there, anything that can be said in words."""
        return (*AWAY, PosthouseError) if self._opened else AWAY

    async def aclose(self) -> None:
        """The end."""
        for app in apps_of(self._services):
            await app.aclose()


async def _one(looking: Looking, history: History, view: View, stop: asyncio.Event, drawing: asyncio.Event) -> float:
    """One look, and the seconds that it took; it is given up when somebody ends it."""
    began = time.monotonic()
    look = asyncio.create_task(_within(looking.look(history)))
    await _until(stop, drawing, float("inf"), lambda: view.passed(history), look)
    if not look.done():
        look.cancel()
    try:
        history.add(await look)
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    except looking.expected as error:
        history.miss(words_of(error), time.monotonic())
    return time.monotonic() - began


async def _within(look: Awaitable[Look]) -> Look:
    try:
        async with asyncio.timeout(LOOK_WITHIN):
            return await look
    except TimeoutError as error:
        raise StoreUnavailable(f"no answer within {LOOK_WITHIN:g} s") from error


async def _until(
    stop: asyncio.Event,
    drawing: asyncio.Event,
    seconds: float,
    passed: Callable[[], None],
    look: asyncio.Task[Look] | None = None,
) -> None:
    """Until it is to stop, so many seconds have passed, or the look has ended. Draws when time passes, and when it is asked to."""
    deadline = time.monotonic() + seconds
    stopped = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set() and (left := deadline - time.monotonic()) > 0 and not (look and look.done()):
            asked = asyncio.create_task(drawing.wait())
            waited = [stopped, asked] if look is None else [stopped, asked, look]
            try:
                await asyncio.wait(waited, timeout=min(left, TICK), return_when=asyncio.FIRST_COMPLETED)
            finally:
                asked.cancel()
            if not stop.is_set() and not (look and look.done()):
                drawing.clear()
                passed()
    finally:
        stopped.cancel()


@contextlib.contextmanager
def _signals(stop: asyncio.Event, drawing: asyncio.Event, view: View) -> Iterator[None]:
    """Signals that end it, that change the size, and that pause it."""
    loop = asyncio.get_running_loop()

    def pause() -> None:
        view.pause()
        drawing.set()

    answers: list[tuple[signal.Signals, Callable[[], None]]] = [(number, stop.set) for number in ENDING]
    answers += [(signal.SIGWINCH, drawing.set), (signal.SIGTSTP, pause)]
    for number, answer in answers:
        loop.add_signal_handler(number, answer)
    try:
        yield
    finally:
        for number, _ in answers:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Nobody writes warnings across the screen: what they would say is on it. Who set up logging has set it up."""
    root, nothing = logging.getLogger(), logging.NullHandler()
    root.addHandler(nothing)
    try:
        yield
    finally:
        root.removeHandler(nothing)


class Live:
    """A screen of its own in a terminal."""

    def __init__(self, targets: Sequence[str], every: float) -> None:
        self._targets, self._every = targets, every
        self._terminal = Terminal(sys.stdout)
        self._said = ""

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        try:
            with self._terminal.taken():
                self.passed(History())
                yield
        finally:
            if self._said:  # so that it is still there when the screen is gone
                say(self._said)

    def looked(self, history: History) -> None:
        self.passed(history)

    def passed(self, history: History) -> None:
        columns, lines = self._terminal.size
        now = time.monotonic()
        place = Place(columns, lines, now, self._terminal.fancy)
        screen = screen_of(history, self._targets, now)
        self._terminal.draw(drawn(screen, self._foot(history), place))
        if history.last is not None:
            self._said = f"{_time(history.last.at)} {screen.headline}"

    def pause(self) -> None:
        self._terminal.pause()

    def _foot(self, history: History) -> str:
        look, names = history.last, " ".join(self._targets)
        if look is None:
            return f"{names} · Ctrl-C ends it"
        took = look.ended - look.began
        again = rest(self._every, took)
        slow = f" (a look took {took:.1f} s)" if again > self._every else ""
        return f"{names} · {_time(look.at)} · every {again:.2g} s{slow} · Ctrl-C ends it"


def _time(moment: float) -> str:
    return time.strftime("%H:%M:%SZ", time.gmtime(moment))


class Blocks:
    """Where there is no screen: one block for each look."""

    def __init__(self, show: Callable[[Look, History], None]) -> None:
        self._show = show

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        yield

    def looked(self, history: History) -> None:
        if history.missed:
            complain(f"posthouse: cannot tell: {history.missed}")
        elif history.last is not None:
            self._show(history.last, history)

    def passed(self, history: History) -> None:
        pass

    def pause(self) -> None:
        signal.raise_signal(signal.SIGSTOP)


def is_screen() -> bool:
    """Whether stdout is a terminal that can be drawn on."""
    console = stdout()
    return console.is_terminal and not console.is_dumb_terminal
