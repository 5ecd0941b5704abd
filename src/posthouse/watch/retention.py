"""Retention: whether the logs of topics keep what the classes of their events ask for, neither shorter nor longer."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from posthouse.app import App
from posthouse.checks import Check
from posthouse.contracts.retention import DAY, Kept, RetentionClasses
from posthouse.survey import Age, Retaining

APPLY = "see `posthouse topology plan TARGET`; `posthouse topology apply TARGET` sets it"
URL = "say retention={0:.0f} in the broker's URL"


class TopicAge(msgspec.Struct, frozen=True, kw_only=True):
    """How long a topic of ours keeps its frames, beside what the classes of its events ask for. `known`: the broker tells."""

    topic: str
    kept: Kept
    age: Age | None
    known: bool = True

    @property
    def judgement(self) -> str:
        """`shorter` than the log must keep it, `longer` than anything may, or nothing."""
        if self.age is None:
            return ""
        seconds = self.age.seconds
        if seconds is not None and seconds < self.kept.log:
            return "shorter"
        return "longer" if seconds is None or seconds > self.kept.archive else ""


def topics_of(app: App, classes: RetentionClasses) -> Mapping[str, Kept]:
    """Of the topics that the services of an App write."""
    return classes.of_topics(known for service in app.services for known in service.declared.own_events)


async def topic_ages(app: App, classes: RetentionClasses) -> list[TopicAge]:
    """Each topic of ours, by name. May raise BrokerUnavailable."""
    wanted = topics_of(app, classes)
    if not isinstance(app.broker, Retaining):
        return [TopicAge(topic=topic, kept=kept, age=None, known=False) for topic, kept in sorted(wanted.items())]
    ages = await app.broker.ages(sorted(wanted))
    return [TopicAge(topic=topic, kept=kept, age=ages.get(topic)) for topic, kept in sorted(wanted.items())]


async def retention_checks(app: App) -> list[Check]:
    """Nothing where nobody has said what the classes mean."""
    classes = app.settings.retention
    if classes is None:
        return []
    found = await topic_ages(app, classes)
    if found and not found[0].known:
        said = (
            f"the {app.broker.sheet.name} broker keeps no log: what was read is in the archive alone, if there is one"
        )
        return [Check(name="retention", found=said)]
    wrong = [_contradiction(one, one.age) for one in found if one.age is not None and one.judgement]
    return wrong or [Check(name="retention", found=f"{len(found)} topics keep what their classes ask for")]


def _contradiction(one: TopicAge, age: Age) -> Check:
    kept, wanted = one.kept, days(one.kept.log)
    if one.judgement == "shorter":
        found = f"keeps frames {days(age.seconds)}, and its class asks for {wanted}"
        fix = f"what was read cannot be read again for as long as was promised: {_remedy(age, kept)}"
    else:
        found = f"keeps frames {days(age.seconds)}, and its class allows {days(kept.archive)} altogether"
        fix = f"facts stay there that should be gone: {_remedy(age, kept)}"
    return Check(name=f"retention of {one.topic}", found=found, judgement="warn", fix=fix)


def _remedy(age: Age, kept: Kept) -> str:
    return APPLY if age.per_topic else URL.format(kept.log)


def days(seconds: float | None) -> str:
    """For people; None is for ever."""
    if seconds is None:
        return "for ever"
    if seconds < DAY:
        return f"{seconds:,.0f} s"
    number = f"{round(seconds / DAY, 2):,g}"
    return f"{number} day" if number == "1" else f"{number} days"
