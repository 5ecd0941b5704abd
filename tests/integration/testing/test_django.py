"""A Django project whose tests use ours, run by its own runner, as its developers do."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from posthouse.errors import ConfigurationError
from posthouse.testing.scratch import BorrowedDatabase
from tests.kit.servers.postgres import PostgresServer

FILES = {
    "manage.py": """
        import os, sys
        from django.core.management import execute_from_command_line
        os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
        execute_from_command_line(sys.argv)
    """,
    "settings.py": """
        import os
        from urllib.parse import urlsplit
        parts = urlsplit(os.environ["SHOP_DATABASE"])
        DATABASES = {"default": {
            "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "USER": parts.username, "HOST": parts.hostname,
            "PORT": parts.port,
        }}
        INSTALLED_APPS = ["shop"]
        SECRET_KEY = "secret"
        USE_TZ = True
    """,
    "shop/__init__.py": "",
    "shop/models.py": """
        from django.db import models

        class Parcel(models.Model):
            order_id = models.TextField(primary_key=True)
    """,
    "shop/events.py": """
        import os
        from django.db.backends.base.base import BaseDatabaseWrapper
        from posthouse import App, Event, Payload, Policy, Service

        shop = Service("shop")
        App(shop, store=os.environ["SHOP_DATABASE"], broker="nats://nobody.invalid:4222")  # that of production

        @shop.event("order.placed.v1", key="order_id")
        class OrderPlaced(Payload):
            order_id: str

        @shop.on(OrderPlaced, policy=Policy(max_attempts=3, first_delay=60.0))
        def pack(event: Event[OrderPlaced], connection: BaseDatabaseWrapper) -> None:
            from shop.models import Parcel
            if event.data.order_id == "bad":
                raise RuntimeError("no")
            Parcel.objects.create(order_id=event.data.order_id)
    """,
    "shop/tests.py": """
        from django.db import connection, transaction
        from django.test import TestCase
        from posthouse.errors import ConfigurationError
        from posthouse.testing.django import HarnessTestCase, OutboxTestCase, django_harness
        from shop.events import OrderPlaced, shop
        from shop.models import Parcel

        def place(order_id, fail=False):
            with transaction.atomic():
                Parcel.objects.create(order_id=f"row of {order_id}")
                shop.outbox.add_now(connection, OrderPlaced(order_id=order_id))
                if fail:
                    raise ZeroDivisionError

        class Saying(OutboxTestCase):
            services = [shop]

            def setUp(self):  # without super(), as Django's own cases allow
                self.assertEqual(self.said_ids(), [])

            def said_ids(self):
                return [event.data.order_id for event in self.said.of(OrderPlaced)]

            def test_what_an_inner_block_rolls_back_is_not_said(self):
                place("o1")
                with self.assertRaises(ZeroDivisionError):
                    place("o2", fail=True)
                with self.assertRaises(ZeroDivisionError), transaction.atomic():
                    place("o3")
                    raise ZeroDivisionError
                place("o4")
                self.assertEqual(self.said_ids(), ["o1", "o4"])

            def test_another_test_begins_with_nothing(self):
                self.assertEqual((self.said_ids(), Parcel.objects.count()), ([], 0))
                place("o1")
                self.assertEqual(self.said_ids(), ["o1"])

        class Refused(TestCase):
            def test_a_harness_needs_transactions_that_commit(self):
                with self.assertRaisesRegex(ConfigurationError, "transaction=True"), django_harness(shop):
                    pass

            def test_services_are_several(self):
                class Alone(OutboxTestCase):
                    services = shop

                    def test(self):
                        pass

                result = Alone("test").run()
                self.assertIn("write `services = [shop]`", result.errors[0][1])

        class Handling:
            services = [shop]

            def setUp(self):
                self.assertEqual(self.harness.held(shop), [])

            def test_handlers_run_on_the_test_database(self):
                self.assertEqual(self.harness.published(OrderPlaced), [])
                place("o1")
                place("bad")
                self.harness.settled()
                self.assertTrue(Parcel.objects.filter(order_id="o1").exists())
                self.assertEqual([event.sequence for event in self.harness.published(OrderPlaced)], [1, 1])
                self.assertEqual([held.state for held in self.harness.held(shop)], ["retrying"])
                self.harness.advance(3600)
                self.assertEqual([held.state for held in self.harness.held(shop)], ["dead"])

        class First(Handling, HarnessTestCase):
            pass

        class Second(Handling, HarnessTestCase):
            pass
    """,
    "outside.py": """
        import os
        import django
        os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
        django.setup()
        from posthouse.testing.django import django_harness
        from shop.events import shop
        with django_harness(shop):
            pass
    """,
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    return tmp_path


def run(project: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SHOP_DATABASE": url, "PYTHONPATH": str(project)}
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_project_tests_what_it_says_and_what_its_handlers_do(
    project: Path, postgres_server: PostgresServer, postgres_url: str
) -> None:
    test_database = f"test_{urlsplit(postgres_url).path[1:]}"
    try:
        for _ in range(2):  # the second time on what the first has kept
            tests = run(project, postgres_url, "manage.py", "test", "--keepdb")
            assert "Ran 6 tests" in tests.stderr, tests.stderr
            assert tests.stderr.endswith("OK\nPreserving test database for alias 'default'...\n"), tests.stderr
    finally:
        postgres_server._drop(test_database)


def test_outside_of_a_test_runner_the_database_of_the_settings_is_refused(
    project: Path, postgres_server: PostgresServer
) -> None:
    url = postgres_server.url_of("test_shop")  # nobody connects to it
    refused = run(project, url, "outside.py")
    assert "Django's database 'default' is 'test_shop', which its test runner did not make" in refused.stderr


def test_a_database_with_events_that_no_test_said_is_refused_whatever_it_is_called(store_url: str) -> None:
    with psycopg.connect(store_url, autocommit=True) as connection:
        connection.execute("INSERT INTO posthouse.key VALUES ('orders', 't1', 'o1', 7)")
        with pytest.raises(ConfigurationError, match=r"posthouse.key of 'test_\w+' has rows that no test made"):
            BorrowedDatabase(store_url).make()
        assert connection.execute("SELECT sequence FROM posthouse.key").fetchall() == [(7,)]
