"""Rules about tenants: each fact belongs to one, and what spans several is on a list."""

from __future__ import annotations

from collections.abc import Iterator

from posthouse.events import DEFAULT_TENANT
from posthouse.governance.document import EventEntry
from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Found, Severity
from posthouse.governance.policies.rule import Rule
from posthouse.governance.policies.words import is_personal, is_secret, matches, one_of, words

SPANNING = one_of("analytics cross_tenant global search_aggregation")
SEVERAL = frozenset({("tenant", "ids"), ("tenants",), ("all", "tenants"), ("tenant", "id", "list")})


def untenanted_event(facts: Facts) -> Iterator[Found]:
    for publish in facts.code.publishes:
        entry = facts.entry_of(publish)
        if publish.platform and entry is not None and not matches(entry.subject, facts.settings.platform):
            sentence = (
                f"{publish.function} publishes {entry.subject} for no tenant, and it is not among the platform's events"
            )
            yield Found(where=entry.subject, sentence=sentence, place=publish.place)
    yield from _forgotten(facts)


def _forgotten(facts: Facts) -> Iterator[Found]:
    """Calls without a tenant, of a service that works for tenants elsewhere in the same file."""
    several = {(call.place.file, call.service) for call in facts.code.tenanted if call.names}
    for call in facts.code.tenanted:
        if not call.names and (call.place.file, call.service) in several:
            sentence = (
                f"{call.function} names no tenant, so what it says is the tenant {DEFAULT_TENANT!r}'s; other calls of "
                f"`{call.service}` in this file name one"
            )
            yield Found(where=call.function, sentence=sentence, place=call.place)


def cross_tenant_topic(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        why = _why_cross_tenant(entry, facts)
        if why and _listed(entry.topic, facts) is None:
            sentence = f"{entry.subject} {why}, and its topic {entry.topic} is not on the list of cross-tenant topics"
            yield Found(where=entry.topic, sentence=sentence, place=facts.place_of(entry))
    yield from _uninvited(facts)


def _why_cross_tenant(entry: EventEntry, facts: Facts) -> str:
    if entry.cross_tenant:
        return "is declared as cross-tenant"
    if token := SPANNING.intersection({entry.service, entry.aggregate}):
        return f"belongs to {min(t for t in token if t)!r}, which spans tenants"
    for field in facts.fields[entry.subject]:
        if words(field.name) in SEVERAL:
            return f"holds several tenants' facts ({field.path})"
        if words(field.name) == ("tenant", "id") and ".*." in field.path:
            return f"holds a tenant for each item ({field.path})"
    return ""


def _uninvited(facts: Facts) -> Iterator[Found]:
    topics = {subject: topic.name for topic in facts.document.topics for subject in topic.subjects}
    for handler in facts.document.handlers:
        for topic in sorted({topics[r.subject] for r in handler.reads if r.subject in topics}):
            readers = _listed(topic, facts)
            if readers is not None and not matches(handler.service, readers):
                sentence = f"{handler.name} reads the cross-tenant topic {topic}, and {handler.service!r} is not among its readers"
                fix = f"add {handler.service!r} to the readers of {topic} in the settings, after a review"
                yield Found(where=topic, sentence=sentence, place=facts.place_of(handler), fix=fix)


def personal_data_across_tenants(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        if _listed(entry.topic, facts) is None and not _why_cross_tenant(entry, facts):
            continue
        declared = facts.classes.get(entry.subject)
        held = [
            field.path
            for field in facts.fields[entry.subject]
            if is_personal(field.name) or is_secret(field.name) or (declared and declared.is_marked(field.path))
        ]
        if held:
            sentence = f"{entry.subject} spans tenants and holds personal data: {', '.join(held)}"
            yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))


def _listed(topic: str, facts: Facts) -> tuple[str, ...] | None:
    """Those who may read a topic that is on the list; None where it is not."""
    found = [readers for pattern, readers in facts.settings.cross_tenant.items() if matches(topic, (pattern,))]
    return tuple(reader for readers in found for reader in readers) if found else None


RULES = (
    Rule(
        id="untenanted-event",
        severity=Severity.ERROR,
        title="An event that is published for no tenant, or for one that was forgotten",
        sees='Publishing inside `transaction("platform")` or with `tenant="platform"`, written so in the code, of an event that '
        "`platform` in the settings does not list. And `transaction`, `joined`, `record` and `outbox.add` without a tenant, of a service "
        "that is given one elsewhere in the same file. A tenant that comes out of a variable is not seen.",
        why="Projections, archives and replays filter by tenant: such a fact is everybody's or nobody's. One that was forgotten is the "
        "tenant `default`'s, for services that have one only.",
        fix="Give the tenant that the fact belongs to; list the few events of the platform itself under `platform`. "
        "`Service(…, default_tenant=None)` refuses every call without one.",
        seeds="D §1.1, §4 and §15; C §11",
        look=untenanted_event,
    ),
    Rule(
        id="cross-tenant-topic",
        severity=Severity.ERROR,
        title="A cross-tenant topic, or a reader of one, that is not on the list",
        sees="Events that are declared `cross_tenant`, those of `analytics`, `search_aggregation`, `global` and `cross_tenant`, and payloads with `tenant_ids`, `tenants` or a "
        "`tenant_id` for each item, on a topic that `cross_tenant` does not list; and handlers of listed topics whose service is "
        "not among the readers.",
        why="What spans tenants looks past every wall between them: one bug there is a breach for all.",
        fix="Publish one event for each tenant; where it must span them, add the topic and its readers to `cross_tenant`.",
        seeds="D §12 and §15",
        look=cross_tenant_topic,
    ),
    Rule(
        id="personal-data-across-tenants",
        severity=Severity.ERROR,
        title="Personal data or secrets on a cross-tenant topic",
        sees="Fields that are marked `Personal`, or whose names say that they are personal or secret, in events that span tenants.",
        why="The one who projects is the border: behind it every tenant's reader sees everything.",
        fix="Strip personal data and payment details before publishing; send an opaque reference.",
        seeds="D §12; REQUIREMENTS T7",
        look=personal_data_across_tenants,
    ),
)
