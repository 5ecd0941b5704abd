"""How topics, queues and subscriptions differ from what this instance would make. Pure: settings in, differences out."""

from __future__ import annotations

import json
from collections.abc import Mapping

from posthouse.brokers.sqs.publishing import LARGEST
from posthouse.errors import BrokerError
from posthouse.survey import Drift

Settings = Mapping[str, str]
ANEW = "it is decided when it is made: remove it when everything was read, and make it anew"
SUBSCRIPTION = "subscription"
POLICY = "Policy"
SID = "posthouse"


def topic_drift(found: Settings, wanted: Settings) -> list[Drift]:
    """What is not shown is not judged: moto keeps `FifoThroughputScope` to itself."""
    return [
        _drift(name, found[name], value) for name, value in wanted.items() if name in found and found[name] != value
    ]


def queue_drift(found: Settings, wanted: Settings, topic: str) -> list[Drift]:
    """`topic` is the ARN that must be allowed to send."""
    drift = [
        _drift(name, found.get(name, "none"), value)
        for name, value in wanted.items()
        if name != POLICY and found.get(name) != value
    ]
    if found.get("RedrivePolicy"):
        drift.append(_drift("RedrivePolicy", found["RedrivePolicy"], "none"))
    if int(found.get("DelaySeconds", "0")):
        drift.append(_drift("DelaySeconds", found["DelaySeconds"], "0"))
    if int(found.get("MaximumMessageSize", LARGEST)) < LARGEST:
        drift.append(_drift("MaximumMessageSize", found["MaximumMessageSize"], str(LARGEST)))
    if topic not in found.get(POLICY, ""):
        drift.append(_drift(POLICY, "does not let the topic send", "lets it"))
    return drift


def subscription_drift(found: Settings) -> list[Drift]:
    """`found` is empty where there is none."""
    if not found:
        return [_drift(SUBSCRIPTION, "missing", "there")]
    drift = []
    if found.get("RawMessageDelivery", "").lower() != "true":
        drift.append(_drift("RawMessageDelivery", found.get("RawMessageDelivery", "none"), "true"))
    if found.get("FilterPolicy", "{}") != "{}":
        drift.append(_drift("FilterPolicy", found["FilterPolicy"], "none"))
    return drift


def repaired(found: Settings, wanted: Settings, topic: str) -> dict[str, str]:
    """What is to be set on a queue. Whatever else its policy allows, stays allowed."""
    values = {**wanted, "RedrivePolicy": "", "DelaySeconds": "0", "MaximumMessageSize": str(LARGEST)}
    names = [drift.setting for drift in queue_drift(found, wanted, topic) if drift.repairable]
    settings = {name: values[name] for name in names if name != POLICY}
    return settings | ({POLICY: with_ours(found.get(POLICY, ""), wanted[POLICY])} if POLICY in names else {})


def with_ours(found: str, ours: str) -> str:
    """A policy with our statement in it, instead of an older one of ours. AWS takes one statement without a list, too."""
    mine = json.loads(ours)
    try:
        policy = json.loads(found or "{}")
        given = policy.get("Statement", [])
        others = [each for each in ([given] if isinstance(given, dict) else given) if each.get("Sid") != SID]
    except (ValueError, AttributeError, TypeError) as error:
        raise BrokerError(f"the queue's policy cannot be read ({error}), and would be lost: set it by hand") from error
    return json.dumps({**mine, **policy, "Statement": [*others, *mine["Statement"]]})


def _drift(name: str, found: str, wanted: str) -> Drift:
    if name in ("FifoTopic", "FifoQueue"):
        return Drift(setting=name, found=found, wanted=wanted, repairable=False, fix=ANEW)
    return Drift(setting=name, found=found, wanted=wanted)
