"""Checks: whether the streams are set up to keep what they were given. Pure: settings in, findings out."""

from __future__ import annotations

from typing import Literal

from posthouse.brokers.nats.topics import NANO, TOGETHER, Config, Topic
from posthouse.checks import Check, judged

LEAST = (2, 11)


def is_durable(config: Config, sync: Literal["always", "default"]) -> bool:
    """On disk, and either synced before the answer or held by three servers."""
    return config.storage == "file" and (sync == "always" or config.num_replicas >= 3)


def version_check(version: tuple[int, int]) -> Check:
    found = f"NATS {version[0]}.{version[1]}"
    if version < LEAST:
        return Check(name="server", found=found, judgement="fail", fix="needs 2.11 or later: upgrade the server")
    slow = version < TOGETHER
    return judged("server", found, wrong=slow, fix="from 2.12 on a batch is stored at once, which is faster")


def topic_checks(topic: Topic, sync: Literal["always", "default"], asked: float | None = None) -> list[Check]:
    """One finding for each setting that the promise rests on. `asked`: the age that somebody decided on, in seconds."""
    config, name = topic.config, f"topic {topic.name}"
    window = config.duplicate_window / NANO
    return [
        judged(
            f"{name}, durability",
            f"{config.storage} storage, {config.num_replicas} replica(s), sync_interval {sync}",
            wrong=not is_durable(config, sync),
            fix="an accepted frame may be lost with its machine: use 3 replicas, or `sync_interval: always` on the server and "
            "sync=always in the URL",
        ),
        judged(
            f"{name}, retention",
            f"{config.retention} policy",
            wrong=config.retention != "limits",
            as_="fail",
            fix="frames would go before every group has read them: make the stream anew with the limits policy",
        ),
        judged(
            f"{name}, full stream",
            f"discards {config.discard}",
            wrong=config.discard != "new",
            fix="a full stream would delete unread frames: set discard to new",
        ),
        judged(
            f"{name}, age",
            f"frames are kept {config.max_age / NANO:,.0f} s" if config.max_age else "frames are kept",
            wrong=config.max_age > 0 and config.max_age / NANO != asked,
            fix="what a group has not read by then is lost to it: set max_age to 0, or watch the lag",
        ),
        judged(
            f"{name}, repeats",
            f"ids are remembered {window:,.0f} s",
            wrong=window < 60,
            fix="a relay that pauses for longer repeats itself, which the inbox then has to notice: set duplicate_window to 2m",
        ),
        judged(
            f"{name}, direct reads",
            "allowed" if config.allow_direct else "not allowed",
            wrong=not config.allow_direct,
            as_="fail",
            fix="seek and progress need them: set allow_direct",
        ),
    ]
