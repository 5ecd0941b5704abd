from hypothesis import given
from hypothesis import strategies as st

from posthouse.brokers.group.assignment import TopicPartition, assign, fair_share, is_alive

NAMES = ("ada", "bob", "cleo", "dan", "eve")


def owned(*owners: str | None) -> dict[TopicPartition, str | None]:
    return {("t", number): owner for number, owner in enumerate(owners)}


def test_a_lone_member_takes_everything() -> None:
    assert assign("ada", {"t": ["ada"]}, owned(*[None] * 4)) == ([("t", number) for number in range(4)], [])


def test_a_newcomer_takes_nothing_by_force() -> None:
    owners = owned(*["ada"] * 4)
    assert assign("bob", {"t": ["ada", "bob"]}, owners) == ([], [])
    assert assign("ada", {"t": ["ada", "bob"]}, owners) == ([], [("t", 2), ("t", 3)])


def test_partitions_of_the_dead_are_free() -> None:
    assert assign("ada", {"t": ["ada"]}, owned("dead", "ada")).take == [("t", 0)]


def test_topics_i_do_not_read_are_none_of_my_business() -> None:
    assert assign("ada", {"t": ["bob"]}, owned(None)) == ([], [])


def test_topics_of_one_partition_spread_over_the_members() -> None:
    topics = [f"topic{n}" for n in range(60)]
    owners = [name for topic in topics for name in NAMES[:3] if fair_share(name, topic, NAMES[:3], 1)]
    assert len(owners) == len(topics)
    assert all(10 < owners.count(name) < 30 for name in NAMES[:3])


@given(
    members=st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
    owners=st.lists(st.sampled_from((*NAMES, "dead", None)), min_size=1, max_size=12),
    topic=st.text(max_size=5),
)
def test_every_partition_finds_an_owner_and_shares_differ_by_one(
    members: list[str], owners: list[str | None], topic: str
) -> None:
    """Each member in turn does what its plan says; two rounds settle it from any state."""
    owned: dict[TopicPartition, str | None] = {(topic, number): owner for number, owner in enumerate(owners)}
    for me in members * 2:
        take, leave = assign(me, {topic: members}, owned)
        owned |= dict.fromkeys(take, me) | dict.fromkeys(leave, None)
    counts = [sum(owner == member for owner in owned.values()) for member in members]
    assert sum(counts) == len(owned)
    assert max(counts) - min(counts) <= 1
    assert all(assign(me, {topic: members}, owned) == ([], []) for me in members), "nothing moves without need"


def test_a_lease_ends_and_one_from_before_a_clock_was_set_back_has_ended() -> None:
    assert is_alive(106, now=100, lease=6)
    assert not is_alive(100, now=100, lease=6)
    assert not is_alive(100 + 7200, now=100, lease=6)
