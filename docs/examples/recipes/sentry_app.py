"""Failures to Sentry: one hook, with the facts of the event as tags."""

import sentry_sdk
from sentry_sdk.integrations.logging import ignore_logger

from posthouse import App, Event, Failure, Payload, Service

sentry_sdk.init()  # the DSN stands in SENTRY_DSN
ignore_logger("posthouse.failures")  # the hook says more than the line in the log


def to_sentry(failure: Failure) -> None:
    if not failure.dead:
        return  # it is tried again by itself
    with sentry_sdk.new_scope() as scope:
        scope.set_tag("handler", failure.handler)
        scope.set_tag("event_type", failure.event_type)
        scope.set_tag("tenant", failure.tenant)
        scope.set_context("posthouse", failure.fields)
        if failure.error is not None:
            sentry_sdk.capture_exception(failure.error)
        else:
            sentry_sdk.capture_message(failure.message, "error")


shop = Service("shop")
app = App(shop, on_failure=to_sentry)


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@shop.on(OrderPlaced)
async def charge(event: Event[OrderPlaced]) -> None:
    raise LookupError(f"nobody pays for {event.data.order_id}")
