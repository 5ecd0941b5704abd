"""Checks: whether topics, queues and subscriptions are set up to keep the promise. Pure: settings in, findings out."""

from __future__ import annotations

from collections.abc import Mapping

from posthouse.brokers.sqs.publishing import LARGEST
from posthouse.brokers.sqs.topics import FORTNIGHT, Queue
from posthouse.checks import Check, judged

Settings = Mapping[str, str]


def is_true(settings: Settings, name: str) -> bool:
    return settings.get(name, "").lower() == "true"


def topic_checks(topic: str, settings: Settings) -> list[Check]:
    fifo = is_true(settings, "FifoTopic")
    return [
        judged(
            f"topic {topic}",
            "FIFO" if fifo else "standard",
            wrong=not fifo,
            as_="fail",
            fix="a standard topic keeps no order: delete it and let ensure() make a FIFO topic",
        )
    ]


def queue_checks(queue: Queue, settings: Settings, visibility: int) -> list[Check]:
    """One finding for each setting of a queue that the promise rests on."""
    name = f"queue of {queue.group} for {queue.topic}"
    fifo, redrive = is_true(settings, "FifoQueue"), settings.get("RedrivePolicy", "")
    largest, kept = int(settings.get("MaximumMessageSize", LARGEST)), int(settings.get("MessageRetentionPeriod", 0))
    seconds, delay = int(settings.get("VisibilityTimeout", 0)), int(settings.get("DelaySeconds", 0))
    scope, limit = settings.get("DeduplicationScope", "queue"), settings.get("FifoThroughputLimit", "perQueue")
    return [
        judged(
            f"{name}, order",
            "FIFO" if fifo else "standard",
            wrong=not fifo,
            as_="fail",
            fix="a standard queue keeps no order: delete it and let ensure() make a FIFO queue",
        ),
        judged(
            f"{name}, dead letters",
            redrive or "none of SQS's own",
            wrong=bool(redrive),
            as_="fail",
            fix="SQS would take frames away and let others of their key pass: remove the RedrivePolicy, Posthouse counts",
        ),
        judged(
            f"{name}, size",
            f"takes {largest:,} bytes",
            wrong=largest < LARGEST,
            as_="fail",
            fix=f"SNS accepts {LARGEST:,} and would lose what does not fit: raise MaximumMessageSize",
        ),
        judged(
            f"{name}, visibility",
            f"{seconds} s; ours is {visibility} s, said with every call and renewed",
            wrong=seconds < visibility,
            fix=f"other clients of this queue would be overtaken earlier than ours: set VisibilityTimeout to {visibility}",
        ),
        judged(
            f"{name}, retention",
            f"frames are kept {kept:,} s",
            wrong=kept < FORTNIGHT,
            fix=f"what the group has not read by then is lost to it: set MessageRetentionPeriod to {FORTNIGHT}",
        ),
        judged(
            f"{name}, speed",
            f"repeats per {scope}, throughput {limit}",
            wrong=(scope, limit) != ("messageGroup", "perMessageGroupId"),
            fix="limited to 300 calls a second: set DeduplicationScope=messageGroup, FifoThroughputLimit=perMessageGroupId",
        ),
        judged(
            f"{name}, delay",
            f"{delay} s",
            wrong=delay > 0,
            fix="every frame is late by that: set DelaySeconds to 0",
        ),
    ]


def subscription_checks(queue: Queue, settings: Settings, policy: str, arn: str) -> list[Check]:
    """Whether what is published reaches the queue, as it was published. `arn` is the topic's."""
    name = f"subscription of {queue.group} to {queue.topic}"
    if not settings:
        fix = "what is published does not reach the group: run ensure() (start the service again)"
        return [Check(name=name, found="there is none", judgement="fail", fix=fix)]
    raw, chosen = is_true(settings, "RawMessageDelivery"), settings.get("FilterPolicy", "")
    return [
        judged(
            f"{name}, form",
            "raw" if raw else "wrapped in SNS's own JSON",
            wrong=not raw,
            as_="fail",
            fix="set RawMessageDelivery to true",
        ),
        judged(
            f"{name}, filter",
            chosen or "none",
            wrong=bool(chosen),
            fix="frames that it leaves out look like gaps in their key: remove the FilterPolicy",
        ),
        judged(
            f"{name}, right to send",
            "the queue's policy names the topic" if arn in policy else "the queue's policy does not name the topic",
            wrong=arn not in policy,
            fix=f"SNS may be refused, and frames lost: allow sns.amazonaws.com sqs:SendMessage where aws:SourceArn is {arn}",
        ),
    ]
