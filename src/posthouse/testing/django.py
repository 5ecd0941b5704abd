"""Django: test cases that follow its test database. They work with `manage.py test` and with pytest-django.

`OutboxTestCase` is Django's TestCase: what is said in a test is in `self.said`, and rolled back with everything else.
`HarnessTestCase` is its TransactionTestCase: `self.harness` runs the handlers on the test database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.creation import TEST_DATABASE_PREFIX
from django.db.migrations.recorder import MigrationRecorder
from django.test import TestCase, TransactionTestCase
from django.test.utils import _TestState
from django.utils import timezone

from posthouse.errors import ConfigurationError
from posthouse.local.django import database_of
from posthouse.local.url import joined, split
from posthouse.service import Service
from posthouse.testing.capturing import Said, capture_outbox
from posthouse.testing.scratch import BorrowedDatabase, store_url
from posthouse.testing.synchronous import SyncHarness

_begun = timezone.now()
"""Test cases are imported before the runner makes a database."""
_borrowed: dict[str, BorrowedDatabase] = {}
"""By URL: test databases of Django in which our tables were made."""


class OutboxTestCase(TestCase):
    """A TestCase that captures what its `services` say: `self.said.of(OrderPlaced)`. Neither our tables nor a broker are needed."""

    services: ClassVar[Sequence[Service]] = ()
    said: Said

    def _callSetUp(self) -> None:  # unittest's own, so that a setUp of the user's need not call ours
        self.said = self.enterContext(capture_outbox(*_declared(self)))
        super()._callSetUp()  # type: ignore[misc] # which its stubs do not know


class HarnessTestCase(TransactionTestCase):
    """A TransactionTestCase that runs its `services` on Django's test database: `self.harness.settled()` waits for their handlers."""

    services: ClassVar[Sequence[Service]] = ()
    database: ClassVar[str] = DEFAULT_DB_ALIAS
    """The one of DATABASES that the store is in."""
    harness: SyncHarness

    def _callSetUp(self) -> None:
        self.harness = self.enterContext(django_harness(*_declared(self), using=self.database))
        super()._callSetUp()  # type: ignore[misc]


@contextmanager
def django_harness(*services: Service, using: str = DEFAULT_DB_ALIAS) -> Iterator[SyncHarness]:
    """The same for a test of pytest-django that has `@pytest.mark.django_db(transaction=True)`: `with django_harness(shop) as harness`."""
    url, schema = url_of_test_database(using), str(getattr(settings, "POSTHOUSE_SCHEMA", "posthouse"))
    if connections[using].in_atomic_block:
        raise ConfigurationError(
            "this test runs inside a transaction that is rolled back, of which handlers see nothing: mark it "
            "`@pytest.mark.django_db(transaction=True)`, or make its class a HarnessTestCase"
        )
    borrowed = _borrowed.get(url)
    if borrowed is None:
        borrowed = BorrowedDatabase(url, schema, new=_is_new(using))
        borrowed.make()
        _borrowed[url] = borrowed
    borrowed.reset()
    try:
        with SyncHarness(*services, store=store_url(url, schema)) as harness:
            yield harness
    finally:
        borrowed.reset()


def url_of_test_database(using: str = DEFAULT_DB_ALIAS) -> str:
    """The URL of the test database that Django's runner made. ConfigurationError when it made none: what is named in the settings is
    not touched."""
    of_it = connections[using].settings_dict
    name, wanted = str(of_it["NAME"]), (of_it.get("TEST") or {}).get("NAME") or TEST_DATABASE_PREFIX
    if not name.startswith(wanted) or not hasattr(_TestState, "saved_data"):
        raise ConfigurationError(
            f"Django's database {using!r} is {name!r}, which its test runner did not make: run this with `manage.py test` or pytest-django"
        )
    return joined(database_of(split(f"django://{using}")))


def _is_new(using: str) -> bool:
    """Whether the runner made the database in this process, and did not keep it from an earlier one: by its first migration. Then
    the events in it are those of other tests."""
    recorder = MigrationRecorder(connections[using])
    first = recorder.migration_qs.order_by("applied").first() if recorder.has_table() else None
    return first is not None and first.applied >= _begun


def _declared(case: OutboxTestCase | HarnessTestCase) -> Sequence[Service]:
    given: object = case.services
    if isinstance(given, Service):
        raise ConfigurationError(f"the services of {type(case).__name__} are a list: write `services = [{given.name}]`")
    if not case.services:
        raise ConfigurationError(f"{type(case).__name__} needs its services: `services = [shop]`")
    return case.services
