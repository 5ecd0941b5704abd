"""How a topic differs from one that this instance would make. Pure: settings in, differences out."""

from __future__ import annotations

from posthouse.brokers.kafka.topics import Settings, Topic
from posthouse.survey import Drift, partition_drift

AGE = "retention.ms"
IN_SYNC = "min.insync.replicas"


def drift_of(topic: Topic, settings: Settings) -> list[Drift]:
    """Number of partitions, replicas, and the settings that the promise rests on."""
    drift = [*partition_drift(topic.partitions, settings.partitions), *_replicas(topic, settings)]
    if not topic.config:
        fix = "grant this user DescribeConfigs on the topic, so that they can be compared"
        return [*drift, Drift(setting="settings", found="hidden", wanted="to be read", repairable=False, fix=fix)]
    for name, wanted in settings.config(topic.name).items():
        found = topic.config.get(name, "unknown")
        if not _same(found, wanted):
            drift.append(_setting(topic, name, found, wanted))
    return drift


def _replicas(topic: Topic, settings: Settings) -> list[Drift]:
    if topic.replicas == settings.replicas:
        return []
    fix = f"move it with kafka-reassign-partitions, or say replicas={topic.replicas} in the broker's URL"
    found, wanted = str(topic.replicas), str(settings.replicas)
    return [Drift(setting="replicas", found=found, wanted=wanted, repairable=False, fix=fix)]


def _setting(topic: Topic, name: str, found: str, wanted: str) -> Drift:
    """More in-sync replicas than there are replicas would refuse every frame, so that waits."""
    if name == IN_SYNC and int(wanted) > topic.replicas:
        fix = f"it has {topic.replicas} replicas, and would take no frame: raise these first"
        return Drift(setting=name, found=found, wanted=wanted, repairable=False, fix=fix)
    return Drift(setting=name, found=found, wanted=wanted, loses=_losses(name, found, wanted))


def _losses(name: str, found: str, wanted: str) -> str:
    """A shorter age deletes what is older, within minutes."""
    shorter = wanted != "-1" and (found == "-1" or not found.isdigit() or int(found) > int(wanted))
    return f"frames older than {int(wanted) / 1000:,.0f} s" if name == AGE and shorter else ""


def _same(found: str, wanted: str) -> bool:
    """Lists have no order."""
    return {part.strip() for part in found.split(",")} == set(wanted.split(","))
