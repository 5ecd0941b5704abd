"""Accounts: what the account of each service at a broker must be allowed, from what the services declare."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from posthouse.app import app_of
from posthouse.receiving import dead_letter_topic
from posthouse.receiving.readers import topics_of
from posthouse.service import Service
from posthouse.trust.rights import Party, Rights
from posthouse.trust.rights.account import Account, merged

NAMED = "{service}"


def accounts_of(services: Iterable[Service], *, named: str = NAMED) -> list[Account]:
    """One for each service, and for each account of another maker that the rights let publish; what a service may not read is left out.
    `named` makes its name: `{service}` in it is that of the service."""
    every = list(services)
    made = [account_of(service, named) for service in every]
    topics = sorted({topic for account in made for topic in account.writes})
    for rights in {id(r): r for service in every if (r := app_of(service).opened.rights) is not None}.values():
        made += _foreign(rights, topics)
    return merged(made)


def account_of(service: Service, named: str = NAMED) -> Account:
    """That of one service."""
    declared, rights = service.declared, app_of(service).opened.rights or Rights()
    party = Party(service.name, service.namespace)
    reads = {
        consumer: tuple(sorted(topic for topic in topics_of(handlers) if not rights.read_problem(party, topic)))
        for consumer, handlers in declared.consumers.items()
    }
    own = {known.topic for known in (*declared.own_events, *declared.internal_events)}
    return Account(
        name=named.replace(NAMED, service.name),
        writes=tuple(sorted(own)),
        dead=tuple(sorted({dead_letter_topic(topic) for topics in reads.values() for topic in topics})),
        reads={consumer: topics for consumer, topics in reads.items() if topics},
        models={model: reads[model] for model in declared.projections if reads.get(model)},
    )


def _foreign(rights: Rights, topics: list[str]) -> list[Account]:
    found: dict[str, set[str]] = {}
    for pattern, names in rights.publish.items():
        for name in names:
            found.setdefault(name, set()).update(topic for topic in topics if fnmatchcase(topic, pattern))
    return [Account(name=name, writes=tuple(sorted(said)), foreign=True) for name, said in found.items() if said]
