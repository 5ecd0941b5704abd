"""What the server holds of ours, and how it is removed."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.brokers.redis.client import Client
from posthouse.brokers.redis.entries import lanes_of
from posthouse.brokers.redis.scripts import Script
from posthouse.brokers.redis.topics import PARTITIONS, ROOT, bell_of, ledger_of, meta_of
from posthouse.errors import BrokerError
from posthouse.survey import Resource, partition_drift

PAGE = 500

ALIVE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local flat = redis.call('HGETALL', KEYS[1])
for at = 1, #flat, 2 do
  if flat[at]:sub(1, 7) == 'member:' and tonumber(flat[at + 1]) > now then return 'at work' end
end
"""

# Whether a member's lease runs, by the server's clock. KEYS: ledger.
AT_WORK = Script("looking for members", f"{ALIVE} return ''")

# Remove a group from lanes unless a member is at work; members that slept hear it by the bell. The ledger goes with it.
# KEYS: ledger, bell, lanes. ARGV: group.
LEAVE = Script(
    "removing a group",
    ALIVE
    + """
for index = 3, #KEYS do
  if redis.call('EXISTS', KEYS[index]) == 1 then redis.call('XGROUP', 'DESTROY', KEYS[index], ARGV[1]) end
end
redis.call('DEL', KEYS[1])
redis.call('XADD', KEYS[2], 'MAXLEN', 1, '*', 'rung', 1)
return ''
""",
)

# The groups that read any of these lanes; where there are none, lanes and meta are deleted. KEYS: meta, lanes.
DROP = Script(
    "removing a topic",
    """
local readers = {}
for index = 2, #KEYS do
  if redis.call('EXISTS', KEYS[index]) == 1 then
    for _, flat in ipairs(redis.call('XINFO', 'GROUPS', KEYS[index])) do
      for at = 1, #flat, 2 do
        if flat[at] == 'name' then readers[flat[at + 1]] = true end
      end
    end
  end
end
local names = {}
for name in pairs(readers) do names[#names + 1] = name end
if #names == 0 then redis.call('DEL', unpack(KEYS)) end
return names
""",
)


class Inventory:
    """Of one server. `partitions` is what this instance makes topics with."""

    def __init__(self, client: Client, partitions: int) -> None:
        self._client = client
        self._partitions = partitions

    async def found(self) -> list[Resource]:
        """Every topic and every place of a group; what a group has not read is counted elsewhere."""
        topics = await self._topics()
        resources = [await self._topic(name, count) for name, count in topics.items()]
        for group, topic in await self._places():
            if topic in topics:
                at_work = bool(await self._client.run(AT_WORK, [ledger_of(group, topic)], ()))
                resources.append(Resource(topic=topic, group=group, called=called(topic, group), at_work=at_work))
        return resources

    async def remove(self, resources: Sequence[Resource]) -> None:
        """One after the other; the first that cannot go ends it."""
        for resource in sorted(resources, key=lambda resource: resource.group is None):
            count = await self._client.ask("HGET", meta_of(resource.topic), PARTITIONS)
            if count is None:
                continue
            lanes = lanes_of(resource.topic, int(count))
            if resource.group is not None:
                keys = [ledger_of(resource.group, resource.topic), bell_of(resource.group), *lanes]
                if await self._client.run(LEAVE, keys, [resource.group]):
                    raise BrokerError(
                        f"group {resource.group!r} has members at work in {resource.topic}: stop them first"
                    )
                continue
            readers = sorted(
                name.decode() for name in await self._client.run(DROP, [meta_of(resource.topic), *lanes], ())
            )
            if readers:
                raise BrokerError(
                    f"topic {resource.topic!r} is read by {', '.join(readers)}: remove these groups first"
                )

    async def _topic(self, name: str, partitions: int) -> Resource:
        lengths = await self._client.ask_all([("XLEN", lane) for lane in lanes_of(name, partitions)])
        drift = partition_drift(partitions, self._partitions)
        return Resource(topic=name, called=called(name, None), frames=sum(lengths), drift=drift)

    async def _topics(self) -> dict[str, int]:
        keys = await self._keys(f"{ROOT}:topic:*")
        counts = await self._client.ask_all([("HGET", key, PARTITIONS) for key in keys]) if keys else []
        names = [key.removeprefix(f"{ROOT}:topic:") for key in keys]
        return {name: int(count) for name, count in zip(names, counts, strict=True) if count is not None}

    async def _places(self) -> list[tuple[str, str]]:
        """Group and topic of every ledger; a topic has no colon."""
        found = (key.removeprefix(f"{ROOT}:group:").rpartition(":") for key in await self._keys(f"{ROOT}:group:*"))
        return [(group, topic) for group, _, topic in found]

    async def _keys(self, pattern: str) -> list[str]:
        keys: set[str] = set()
        cursor: bytes | str = "0"
        while True:
            cursor, page = await self._client.ask("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE)
            keys |= {key.decode() for key in page}
            if int(cursor) == 0:
                return sorted(keys)


def called(topic: str, group: str | None) -> str:
    return f"streams {topic} and {topic}:*" if group is None else f"group {group} of {topic}:*"
