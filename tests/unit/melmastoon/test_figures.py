"""The platform's nine figures under the names and labels of its specification, from a run of two of its services."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from melmastoon.inventory import inventory
from melmastoon.reservation import commands, reservation
from melmastoon.tenancy import CLASSES, classes, tenant_class
from posthouse import app_of
from posthouse.errors import ConfigurationError
from posthouse.testing import Harness
from posthouse.watch.process import samples
from posthouse.watch.prometheus import render
from posthouse.watch.standing import Standing
from tests.unit.melmastoon.stay import held, room
from tests.unit.watch.test_table import NINE

LABELS = {name: set(labels) for name, (_, labels) in NINE.items()}
KINDS = {name: kind for name, (kind, _) in NINE.items()}


async def test_the_nine_names_have_the_kinds_and_labels_of_the_specification() -> None:
    async with Harness(reservation, inventory) as harness:
        await harness.publish(room(), tenant="serena")
        for booking in ("b1234", "b5678"):  # there is one room: the second is not confirmed
            async with reservation.transaction("serena") as tx:
                await commands.hold(tx, held(booking))
        await harness.settled()
        apps = [app_of(service) for service in (reservation, inventory)]
        said = [*samples(apps), *await Standing(apps).samples()]

    text, _ = render(said, prefix="melmastoon")

    found = {family.name: family for family in parsed(text.decode()) if family.name.startswith("melmastoon_")}
    plain = {f"melmastoon_{name.removesuffix('_total')}": name for name in NINE}
    assert set(found) == set(plain)
    for family, name in plain.items():
        assert found[family].type == KINDS[name]
        labels = [set(line.labels) - {"le"} for line in found[family].samples]
        assert labels, f"{name} has no series"
        assert all(one == LABELS[name] for one in labels)
    published = {
        (line.labels["service"], line.labels["tenant_id_class"]): line.value
        for line in found["melmastoon_events_published"].samples
    }
    assert published["reservation", "small"] >= 1
    assert {word for _, word in published} <= set(CLASSES)
    in_flight = {line.labels["saga_name"]: line.value for line in found["melmastoon_saga_inflight_count"].samples}
    assert in_flight["booking"] == 1
    completed = found["melmastoon_saga_completed"].samples
    ended = {line.labels["outcome"]: line.value for line in completed if line.labels["saga_name"] == "booking"}
    assert ended["compensated"] == 1
    assert (ended["success"], ended["partial"]) == (0, 0)
    for secret in (b"serena", b"b1234", b"b5678"):
        assert secret not in text


def test_the_platform_is_a_class_and_who_is_not_known_is_small() -> None:
    assert (tenant_class("platform"), tenant_class("a-new-house")) == ("platform", "small")
    assert classes("serena=large, caravan=medium")["serena"] == "large"


@pytest.mark.parametrize("text", ["serena=huge", "serena", "serena="])
def test_a_class_that_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"MELMASTOON_TENANTS: serena.*: a class is small, medium, large, platform"
    ):
        classes(text)
