"""What hoteliers and their people do: they open their houses, and have their rounds every morning and every night."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, get_args

from melmastoon.ai_orchestrator import commands as ai
from melmastoon.analytics import commands as analytics_commands
from melmastoon.audit import commands as audit_commands
from melmastoon.demo.cast import HOUSES, NIGHT_CENTS, ROOMS, STANDARD, TENANTS, House
from melmastoon.demo.stage import Stage
from melmastoon.facts.ai_orchestrator import Provenance, ai_orchestrator
from melmastoon.facts.analytics import analytics
from melmastoon.facts.audit import audit
from melmastoon.facts.file import file
from melmastoon.facts.house import CURRENCY
from melmastoon.facts.housekeeping import housekeeping
from melmastoon.facts.iam import iam
from melmastoon.facts.lock_integration import Vendor, lock_integration
from melmastoon.facts.maintenance import maintenance
from melmastoon.facts.pricing import pricing
from melmastoon.facts.property import property
from melmastoon.facts.staff import staff
from melmastoon.facts.sync import sync
from melmastoon.facts.tenant import tenant
from melmastoon.facts.theme import theme
from melmastoon.file import commands as files
from melmastoon.housekeeping import commands as cleaning
from melmastoon.iam import commands as users
from melmastoon.lock_integration.devices import pair_device
from melmastoon.maintenance import commands as repairs
from melmastoon.pricing import commands as rates
from melmastoon.pricing import quotes
from melmastoon.property import commands as properties
from melmastoon.staff import commands as shifts
from melmastoon.sync import commands as desktops
from melmastoon.tables import run, typed
from melmastoon.tenant import commands as tenants
from melmastoon.theme import commands as themes
from melmastoon.vendors.writing import writer

VENDORS: tuple[Vendor, ...] = get_args(Vendor)
CLOSED = "tulip"
"""A fourth hotelier, who is suspended before the first guest comes."""


async def opening(stage: Stage) -> None:
    """Three hoteliers come onto the platform with two houses each; one more comes and goes."""
    for name in (*TENANTS, CLOSED):
        await _join(name)
        await _look(name)
    for house in (*HOUSES, House(CLOSED, f"{CLOSED}-1")):
        await _house(house)
        await _locks_and_prices(house)
    async with tenant.transaction(CLOSED) as tx:
        await tenants.suspend_tenant(tx, "compliance")


async def _join(name: str) -> None:
    async with tenant.transaction(name) as tx:
        await tenants.create_tenant(tx, name=f"{name.title()} Hotels", plan="growth", country="AF")
        await tenants.change_setting(tx, "currency", CURRENCY)
        await tenants.grant_role(tx, f"owner-{name}", "owner", granted_by="platform")
    async with iam.transaction(name) as tx:
        await users.create_user(tx, f"owner-{name}", email=f"owner@{name}.example.com", locale="fa")
        await users.enrol_factor(tx, f"totp-{name}", user_id=f"owner-{name}", factor="totp")
        for number in (1, 2):
            await users.bind_device(
                tx, f"desktop-{name}-{number}", user_id=f"owner-{name}", property_id=f"{name}-{number}"
            )


async def _look(name: str) -> None:
    async with theme.transaction(name) as tx:
        await themes.publish_preset(tx, "courtyard", name="Courtyard")
        brand = themes.Brand(preset_id="courtyard", primary_colour="#1a4b6c", accent_colour="#c89b3c", font="Vazirmatn")
        await themes.change_tokens(tx, name, brand)
        await themes.change_content(tx, f"welcome-{name}", "Welcome, guest.", page="home", locale="en")
    async with file.transaction(name) as tx:
        await files.upload(tx, f"logo-{name}", name.encode(), purpose="logo", media_type="image/svg+xml")


async def _house(house: House) -> None:
    async with property.transaction(house.tenant) as tx:
        place = house.property_id
        await properties.create_property(
            tx, place, name=f"House {place}", city="Kabul", country="AF", currency=CURRENCY
        )
        await properties.change_amenities(tx, place, ("garden", "tea"))
        for room_type, count in ROOMS.items():
            await properties.publish_room_type(tx, place, room_type, beds=2, most_guests=3)
            for number in range(1, count + 1):
                room = f"{place}-{room_type}-{number}"
                await properties.add_room(
                    tx, room, property_id=place, room_type=room_type, number=f"{room_type}-{number}"
                )
        old = f"{place}-{STANDARD}-0"
        await properties.add_room(tx, old, property_id=place, room_type=STANDARD, number="cellar")
        await properties.archive_room(tx, old, reason="closed")


async def _locks_and_prices(house: House) -> None:
    place = house.property_id
    vendor = VENDORS[len(place + house.tenant) % len(VENDORS)]
    async with lock_integration.transaction(house.tenant) as tx:
        for room_type, count in ROOMS.items():
            for number in range(1, count + 1):
                room = f"{place}-{room_type}-{number}"
                await pair_device(tx, f"lock-{room}", property_id=place, room_id=room, vendor=vendor)
    async with pricing.transaction(house.tenant) as tx:
        for room_type, cents in NIGHT_CENTS.items():
            await rates.publish_rate_plan(
                tx, f"bar-{place}-{room_type}", property_id=place, room_type=room_type, night_cents=cents
            )
        old = f"early-{place}"
        await rates.publish_rate_plan(tx, old, property_id=place, room_type=STANDARD, night_cents=NIGHT_CENTS[STANDARD])
        await rates.archive_rate_plan(tx, old)


async def morning(stage: Stage) -> None:
    """Shifts begin, the owner signs in, desktops catch up, and somebody looks at prices without booking."""
    day = stage.today.isoformat()
    for name in TENANTS:
        async with iam.transaction(name) as tx:
            await users.sign_in(tx, f"session-{name}-{day}", user_id=f"owner-{name}", device_id=f"desktop-{name}-1")
    for house in HOUSES:
        place = house.property_id
        async with staff.transaction(house.tenant) as tx:
            for duty in ("housekeeping", "front_desk"):
                await shifts.open_shift(
                    tx, f"{duty}-{place}-{day}", staff_id=f"{duty}-{place}", property_id=place, duty=duty
                )
        async with pricing.transaction(house.tenant) as tx:
            window = (stage.today + timedelta(days=2), stage.today + timedelta(days=3))
            await quotes.quote(
                tx,
                f"look-{place}-{day}",
                property_id=place,
                room_type=STANDARD,
                check_in=window[0],
                check_out=window[1],
            )
    await _catch_up()
    await _odds_and_ends(stage)


async def _catch_up() -> None:
    """Every desktop pulls until it has seen everything."""
    for house in HOUSES:
        name = f"desktop-{house.tenant}-{house.property_id[-1]}"
        async with sync.transaction(house.tenant) as tx:
            found = await run(
                tx, "SELECT reached FROM sync_device WHERE tenant = ? AND device_id = ? AND bound = 1", tx.tenant, name
            )
            since = int(str(found.scalar())) if found else 0
            if found:
                deltas = await desktops.pull(tx, name, since=since)
                if deltas:
                    await desktops.pull(tx, name, since=deltas[-1].position)


async def _odds_and_ends(stage: Stage) -> None:
    """What happens now and then: repairs, texts, an old desktop, a price for one night."""
    number = (stage.today - stage.first_day).days
    house = HOUSES[number % len(HOUSES)]
    place, day = house.property_id, stage.today.isoformat()
    async with maintenance.transaction(house.tenant) as tx:
        room = f"{place}-{STANDARD}-3"
        ticket = f"ticket-{place}-{day}"
        await repairs.open_ticket(
            tx, ticket, property_id=place, room_id=room, summary="The lamp is out.", out_of_order=False
        )
        await repairs.close_ticket(tx, ticket, parts=("bulb",), labour_minutes=10)
    async with pricing.transaction(house.tenant) as tx:
        await rates.set_night_price(
            tx,
            property_id=place,
            room_type=STANDARD,
            night=stage.today + timedelta(days=120),
            night_cents=NIGHT_CENTS[STANDARD] + number,
        )
    await ai.complete(house.tenant, f"reply-{place}-{day}", "Is there a garden?", purpose="guest_reply", model=writer())
    prompt = "My card is 4111 1111 1111 1111, book me a room."
    await ai.complete(house.tenant, f"refused-{place}-{day}", prompt, purpose="guest_reply", model=writer())
    async with ai_orchestrator.transaction(house.tenant) as tx:
        provenance = Provenance(model="counter", model_version="1", confidence=0.8, source=f"camera-{place}")
        await ai.record_inference(
            tx,
            f"forecast-{place}-{day}",
            str(number),
            device_id=f"desktop-{house.tenant}-1",
            purpose="occupancy_forecast",
            provenance=provenance,
        )
    if number == 1:
        await _lose_a_desktop(house)


CHANGED = "SELECT thing, thing_id FROM sync_delta WHERE tenant = ? ORDER BY position LIMIT 1"


async def _lose_a_desktop(house: House) -> None:
    """It had been offline, wants to overwrite what happened meanwhile, and is trusted no more."""
    name = f"desktop-{house.tenant}-2"
    async with sync.transaction(house.tenant) as tx:
        changed = typed(await run(tx, CHANGED, house.tenant), tuple[Literal["booking", "room", "folio"], str])
    for thing, thing_id in changed:
        late = desktops.Mutation(
            mutation_id=f"late-{name}", thing=thing, thing_id=thing_id, wanted="as it was", based_on=0
        )
        await desktops.push(house.tenant, name, late, _nothing)
    async with iam.transaction(house.tenant) as tx:
        await users.unbind_device(tx, name, reason="lost")


async def _nothing(mutation: desktops.Mutation) -> None:
    """What the desktop wants is not done: it is a conflict."""


ASSIGNED = "SELECT task_id, staff_id FROM tasks WHERE tenant = ? AND state = 'assigned' ORDER BY task_id"


async def night(stage: Stage) -> None:
    """Rooms are done, shifts end, the figures of the day are computed, and doubles are looked at."""
    day = stage.today.isoformat()
    for name in TENANTS:
        async with housekeeping.transaction(name) as tx:
            for task_id, staff_id in typed(await run(tx, ASSIGNED, name), tuple[str, str]):
                await cleaning.complete_task(tx, task_id, staff_id=staff_id)
    for house in HOUSES:
        async with staff.transaction(house.tenant) as tx:
            for duty in ("housekeeping", "front_desk"):
                await shifts.close_shift(tx, f"{duty}-{house.property_id}-{day}")
    for name in TENANTS:
        async with analytics.transaction(name) as tx:
            await analytics_commands.compute_snapshot(tx, stage.today)
        async with audit.transaction(name) as tx:
            await audit_commands.append_note(tx, f"night-{name}-{day}", "The night audit found everything in order.")
            await audit_commands.anchor(tx)
        async with ai_orchestrator.transaction(name) as tx:
            open_ones = "SELECT anomaly_id FROM ai_anomaly WHERE tenant = ? AND decision = '' ORDER BY anomaly_id"
            for (anomaly_id,) in await run(tx, open_ones, name):
                await ai.decide(tx, str(anomaly_id), "confirmed", staff_id=f"owner-{name}")
        async with iam.transaction(name) as tx:
            await users.sign_out(tx, f"session-{name}-{day}")
