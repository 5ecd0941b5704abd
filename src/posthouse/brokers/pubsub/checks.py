"""Checks: whether endpoint and subscriptions are set up to keep the promise. Pure: settings in, findings out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from google.pubsub_v1.types import Subscription

from posthouse.checks import Check, judged

DAY = 86_400


def seconds(duration: object) -> float:
    """Of what the driver declares as a protobuf message and gives as a timedelta, or as None; 0 means not set."""
    return duration.total_seconds() if isinstance(duration, timedelta) else 0.0


def endpoint_check(endpoint: str | None, emulator: str | None) -> Check:
    """Order is kept among the publishers of one region; the global endpoint chooses one for each connection."""
    if emulator is not None:
        return Check(
            name="endpoint",
            found=f"an emulator at {emulator}",
            judgement="warn",
            fix="it keeps nothing: for tests only",
        )
    return judged(
        "endpoint",
        endpoint or "the global one",
        wrong=endpoint is None or "-" not in endpoint,
        fix="publishers of a key may reach different regions, where its order ends: set endpoint to a regional one, as in "
        "endpoint=europe-west1-pubsub.googleapis.com",
    )


def checks_of(subscription: Subscription) -> Sequence[Check]:
    """One finding for each setting of a subscription that the promise rests on."""
    name = f"subscription {subscription.name.rsplit('/', 1)[-1]}"
    kept = seconds(subscription.message_retention_duration)
    expiry = seconds(subscription.expiration_policy.ttl)
    return [
        judged(
            f"{name}, topic",
            subscription.topic.rsplit("/", 1)[-1],
            wrong=subscription.topic == "_deleted-topic_" or subscription.detached,
            as_="fail",
            fix="its topic was deleted, or it was detached: delete the subscription and make both anew",
        ),
        judged(
            f"{name}, order",
            "kept" if subscription.enable_message_ordering else "not kept",
            wrong=not subscription.enable_message_ordering,
            as_="fail",
            fix="it cannot be set afterwards: make the subscription anew with enable_message_ordering",
        ),
        judged(
            f"{name}, filter",
            subscription.filter or "none",
            wrong=bool(subscription.filter),
            as_="fail",
            fix="what it hides looks like a gap in its key: make the subscription anew without one",
        ),
        judged(
            f"{name}, deliveries",
            "counted" if subscription.dead_letter_policy.dead_letter_topic else "not counted",
            wrong=not subscription.dead_letter_policy.dead_letter_topic,
            fix="every frame counts as one that may have come before: set a dead-letter topic",
        ),
        judged(
            f"{name}, limit of deliveries",
            f"{subscription.dead_letter_policy.max_delivery_attempts}",
            wrong=0 < subscription.dead_letter_policy.max_delivery_attempts < 100,
            fix="after so many crashes the service takes a frame out of its key's order: set it to 100",
        ),
        judged(
            f"{name}, retention",
            f"{kept / DAY:g} days",
            wrong=kept < 7 * DAY,
            fix="what the group has not read by then is gone: set message_retention_duration to 7 days",
        ),
        judged(
            f"{name}, seek",
            "acknowledged frames are kept" if subscription.retain_acked_messages else "acknowledged frames are dropped",
            wrong=not subscription.retain_acked_messages,
            fix="seek cannot go back to them: set retain_acked_messages, or replay from the archive",
        ),
        judged(
            f"{name}, expiry",
            f"{expiry / DAY:g} days" if expiry else "never",
            wrong=bool(expiry),
            fix="a group that is silent for so long is deleted with its backlog: set the expiration policy to never",
        ),
    ]
