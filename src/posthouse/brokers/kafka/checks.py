"""Checks: whether topics and servers are set up to keep what they were given. Pure: settings in, findings out."""

from __future__ import annotations

from collections.abc import Mapping

from posthouse.brokers.kafka.topics import Topic
from posthouse.checks import Check, judged

WEEK_MINUTES = 7 * 24 * 60


def is_durable(topic: Topic) -> bool:
    """In the memory of two machines at least, with a third to go on; or on the disk before the answer."""
    in_sync = int(topic.config.get("min.insync.replicas", 1))
    return (topic.replicas >= 3 and in_sync >= 2) or topic.config.get("flush.messages") == "1"


def keeps(topic: Topic) -> bool:
    """Whether nothing is deleted before it was read."""
    return topic.config.get("retention.ms") == "-1" and topic.config.get("retention.bytes") == "-1"


def keeps_for(topic: Topic, seconds: float | None) -> bool:
    """Whether frames go by their age alone, and by this one."""
    if seconds is None or topic.config.get("retention.bytes") != "-1":
        return False
    return topic.config.get("retention.ms") == str(int(seconds * 1000))


def server_checks(config: Mapping[str, str]) -> list[Check]:
    """Of one server; nothing where this service may not read its settings."""
    if not config:
        return [
            Check(
                name="servers",
                found="their settings may not be read",
                judgement="warn",
                fix="grant DescribeConfigs on the cluster, so that they can be checked",
            )
        ]
    minutes = int(config.get("offsets.retention.minutes", WEEK_MINUTES))
    return [
        judged(
            "cursors",
            f"kept {minutes / 1440:g} days after the last member of a group has left",
            wrong=minutes < WEEK_MINUTES,
            fix="a group that is away for longer reads everything again: raise offsets.retention.minutes",
        ),
        judged(
            "unknown topics",
            "made at the first use" if config.get("auto.create.topics.enable") == "true" else "refused",
            wrong=config.get("auto.create.topics.enable") == "true",
            fix="other clients make topics by mistyping: set auto.create.topics.enable=false",
        ),
    ]


def topic_checks(topic: Topic, partitions: int, asked: float | None = None) -> list[Check]:
    """One finding for each setting that the promise rests on. `asked`: the age that somebody decided on, in seconds."""
    name, config = f"topic {topic.name}", topic.config
    if not config:
        return [
            Check(
                name=name,
                found="its settings may not be read",
                judgement="warn",
                fix="grant DescribeConfigs on the topic, so that they can be checked",
            )
        ]
    policy = config.get("cleanup.policy", "")
    days = int(config.get("retention.ms", -1)) / 86_400_000
    return [
        judged(
            f"{name}, durability",
            f"{topic.replicas} replica(s), {config.get('min.insync.replicas')} in sync at least",
            wrong=not is_durable(topic),
            fix="an accepted frame may be lost with its machine: use 3 replicas and min.insync.replicas=2",
        ),
        judged(
            f"{name}, leaders",
            "unclean ones are elected" if config.get("unclean.leader.election.enable") == "true" else "clean ones only",
            wrong=config.get("unclean.leader.election.enable") == "true",
            as_="fail",
            fix="a new leader may have missed accepted frames: set unclean.leader.election.enable=false",
        ),
        judged(
            f"{name}, clean-up",
            policy,
            wrong="compact" in policy,
            as_="fail",
            fix="only the last frame of each key would be kept: set cleanup.policy=delete",
        ),
        judged(
            f"{name}, age",
            "frames are kept" if keeps(topic) else f"frames are kept {days:g} days, or by size",
            wrong=not keeps(topic) and not keeps_for(topic, asked),
            fix="what a group has not read by then is lost to it: set retention.ms=-1, or watch the lag",
        ),
        judged(
            f"{name}, partitions",
            str(topic.partitions),
            wrong=topic.partitions != partitions,
            fix=f"the URL says {partitions}: if they were added, keys have moved and only their numbers keep the order; "
            f"else set partitions={topic.partitions} in the URL",
        ),
    ]
