"""The production profile is what seed D says, and what the services declare."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from urllib.parse import parse_qs, urlsplit

import pytest

from melmastoon.facts.house import HOME
from melmastoon.platform import SERVICES
from melmastoon.production import LOADS, PULL_DEADLINE, PUSH_DEADLINE, broker_of, load_of, settings_of
from posthouse import Policy, Service
from posthouse.brokers import check_broker
from posthouse.receiving import dead_letter_topic

UNORDERED = {"notification", "analytics", "audit"}
"""D, 11.3: not required."""
PATIENT = {"payment", "lock_integration"}
"""Money whose fate is unknown and keys that must end are asked about for longer than seven times."""

NAMES = [service.name for service in SERVICES]


def _policies(service: Service) -> list[Policy]:
    return [handler.policy for handlers in service.declared.consumers.values() for handler in handlers.values()]


@pytest.mark.parametrize("service", SERVICES, ids=NAMES)
def test_an_event_is_run_seven_times_and_then_set_aside(service: Service) -> None:
    tries = {policy.max_attempts for policy in _policies(service)}
    assert tries <= ({7, 60} if service.name in PATIENT else {7})
    assert (Policy().max_attempts, Policy().first_delay, Policy().last_delay) == (7, 10.0, 600.0)
    assert dead_letter_topic("melmastoon.reservation.booking") == "melmastoon.reservation.booking.dlq"


@pytest.mark.parametrize("service", SERVICES, ids=NAMES)
def test_a_run_is_over_before_its_message_comes_again(service: Service) -> None:
    most = PUSH_DEADLINE if load_of(service.name).mode == "push" else PULL_DEADLINE
    assert max((policy.deadline for policy in _policies(service)), default=0.0) <= most


@pytest.mark.parametrize("service", SERVICES, ids=NAMES)
def test_order_is_kept_where_it_is_required_and_nowhere_else(service: Service) -> None:
    orders = {policy.order for policy in _policies(service)}
    if service.name in UNORDERED:
        assert (orders, load_of(service.name).order) == ({"none"}, "")
    elif service.name in LOADS:
        assert "key" in orders
        assert load_of(service.name).order


@pytest.mark.parametrize("service", SERVICES, ids=NAMES)
def test_each_service_has_a_broker_of_its_own_deadline_endpoint_and_account(service: Service) -> None:
    url = broker_of(service.name, region=HOME)
    check_broker(url)
    said = parse_qs(urlsplit(url).query)
    pushed = load_of(service.name).mode == "push"
    assert said["lease"] == [str(PUSH_DEADLINE if pushed else PULL_DEADLINE)]
    assert said["endpoint"] == [f"{HOME}-pubsub.googleapis.com"]
    assert ("push" in said) == pushed
    if pushed:
        assert urlsplit(said["push"][0]).path == "/internal/events"
        assert said["push_account"][0].endswith("-service-subscriber@melmastoon-prod.iam.gserviceaccount.com")


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("inventory", (1, 10, 4)),
        ("billing", (1, 20, 8)),
        ("lock_integration", (1, 10, 2)),
        ("notification", (0, 50, 20)),
        ("analytics", (4, 4, 16)),
        ("search_aggregation", (2, 2, 8)),
        ("audit", (8, 8, 32)),
    ],
)
def test_concurrency_is_that_of_the_table(name: str, figures: tuple[int, int, int]) -> None:
    load = load_of(name)
    assert (load.least, load.most, load.at_once) == figures
    settings = settings_of(name, region=HOME)
    assert (settings.in_flight, settings.calls_at_once, settings.residency) == (figures[2], figures[2], HOME)


SHOW = """
from melmastoon.platform import SERVICES
from posthouse import app_of
apps = [app_of(service) for service in SERVICES]
print(len({app.opened.ports.broker_url for app in apps}), {app.opened.rights.grants for app in apps},
    sorted({app.settings.in_flight for app in apps}))
"""


def _said(*command: str) -> str:
    environment = {**os.environ, "MELMASTOON_PROFILE": "production"}
    return subprocess.run(
        [sys.executable, *command], env=environment, check=True, capture_output=True, text=True, timeout=60
    ).stdout


def test_the_environment_switches_all_of_it_on() -> None:
    pulling = 5
    assert _said("-c", SHOW).split() == [str(22 - pulling + 1), "{True}", "[2,", "4,", "8,", "16,", "20,", "32]"]


def test_terraform_is_told_whom_to_push_to() -> None:
    said = json.loads(_said("-m", "melmastoon.terraform"))
    assert (said["project"], said["lease"]) == ("melmastoon-prod", 60)
    assert said["push"]["inventory"]["endpoint"] == (
        "https://inventory-service.internal.melmastoon.example/internal/events"
    )
    assert not {"audit", "analytics", "search_aggregation", "payment", "lock_integration"} & said["push"].keys()
    assert {"reservation.booking", "reservation.erasure", "notification.alerts"} <= said["push"].keys()
