"""ScheduleBook: the schedules that one service declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from posthouse.contracts import EventType
from posthouse.errors import ConfigurationError
from posthouse.events.subject import why_no_token
from posthouse.processes.schedule.cron import Missed, cron_of
from posthouse.processes.schedule.run import is_run, run_event, run_subject
from posthouse.processes.schedule.schedule import RunHandler, Schedule, Tenants
from posthouse.receiving import Policy, Uses, handler_of


class ScheduleBook:
    """By name."""

    def __init__(self, service: str, namespace: str | None) -> None:
        self.service = service
        self._namespace = namespace
        self._schedules: dict[str, Schedule] = {}

    @property
    def consumer(self) -> str:
        """The consumer group in which they run."""
        return f"{self.service}.schedules"

    @property
    def internal_events(self) -> Sequence[EventType[object]]:
        """What begins runs."""
        return [cast("EventType[object]", schedule.event_type) for schedule in self]

    def is_run(self, subject: str) -> bool:
        """Whether it begins runs of a schedule of this service, be it declared here or in another release."""
        return is_run(subject, self.service, self._namespace)

    def subject(self, name: str) -> str:
        """Of the event that begins runs of a schedule, be it declared here or not."""
        return str(run_subject(self.service, self._namespace, name))

    def __iter__(self) -> Iterator[Schedule]:
        return iter(self._schedules.values())

    def get(self, name: str) -> Schedule | None:
        """One of them."""
        return self._schedules.get(name)

    def declare(
        self,
        function: Callable[..., object],
        expression: str,
        *,
        tz: str,
        name: str | None,
        missed: Missed,
        tenants: Tenants,
        whose: bool = True,
        policy: Policy,
    ) -> Schedule:
        """Add one. ConfigurationError for what cannot work."""
        owner = f"{self.service}.every"
        cron = cron_of(owner, expression, tz)
        name = getattr(function, "__name__", "") if name is None else name
        if wrong := why_no_token(name):
            raise ConfigurationError(f"{owner}: {name!r} {wrong}")
        if name in self._schedules:
            known = self._schedules[name].handler.name
            raise ConfigurationError(f"{owner}: {known} is the schedule {name!r} already: give the other one name=…")
        _refuse_tenants(owner, tenants)
        event_type = run_event(self.service, self._namespace, name)
        handler = handler_of(function, [cast("EventType[object]", event_type)], policy, Uses())
        if handler.many or policy.grouped:
            raise ConfigurationError(
                f"{handler.name} takes one run: it has a transaction of its own, no list and no group"
            )
        made = Schedule(
            service=self.service,
            name=name,
            cron=cron,
            missed=missed,
            tenants=tenants,
            whose=whose,
            event_type=event_type,
            handler=RunHandler(**vars(handler), service=self.service, tz=tz),
            description=inspect.getdoc(function) or "",
        )
        self._schedules[name] = made
        return made


def _refuse_tenants(owner: str, tenants: Tenants) -> None:
    if callable(tenants):
        if not inspect.iscoroutinefunction(tenants) or len(inspect.signature(tenants).parameters) != 1:
            raise ConfigurationError(f"{owner}(tenants=…) is an async function of a Tx, or a list of tenants")
    elif not tenants:
        raise ConfigurationError(f"{owner}(tenants={tenants!r}) runs for nobody: name a tenant, tenants=['t1']")
