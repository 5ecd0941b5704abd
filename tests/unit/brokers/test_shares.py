from hypothesis import given
from hypothesis import strategies as st

from posthouse.brokers.shares import Claim, fair_share, is_alive, plan

NAMES = ("ada", "bob", "cleo", "dan", "eve")


def test_a_lone_member_takes_everything() -> None:
    claims = [Claim(1, partition, None) for partition in range(4)]
    assert plan("ada", {1: ["ada"]}, claims) == (claims, [])


def test_a_newcomer_takes_nothing_by_force() -> None:
    claims = [Claim(1, partition, "ada") for partition in range(4)]
    assert plan("bob", {1: ["ada", "bob"]}, claims) == ([], [])
    assert plan("ada", {1: ["ada", "bob"]}, claims) == ([], claims[2:])


def test_partitions_of_the_dead_are_free() -> None:
    claims = [Claim(1, 0, "dead"), Claim(1, 1, "ada")]
    assert plan("ada", {1: ["ada"]}, claims).take == [claims[0]]


def test_topics_i_do_not_read_are_none_of_my_business() -> None:
    assert plan("ada", {1: ["bob"]}, [Claim(1, 0, None)]) == ([], [])


def test_topics_of_one_partition_spread_over_the_members() -> None:
    owners = [name for topic in range(6) for name in NAMES[:3] if fair_share(name, topic, NAMES[:3], 1)]
    assert {name: owners.count(name) for name in owners} == {"ada": 2, "bob": 2, "cleo": 2}


@given(
    members=st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
    owners=st.lists(st.sampled_from((*NAMES, "dead", None)), min_size=1, max_size=12),
    topic=st.integers(0, 5),
)
def test_every_partition_finds_an_owner_and_shares_differ_by_one(
    members: list[str], owners: list[str | None], topic: int
) -> None:
    """Each member in turn does what its plan says; two rounds settle it from any state."""
    claims = [Claim(topic, partition, owner) for partition, owner in enumerate(owners)]
    for me in members * 2:
        take, leave = plan(me, {topic: members}, claims)
        moved = {claim.partition: me for claim in take} | {claim.partition: None for claim in leave}
        claims = [claim._replace(owner=moved.get(claim.partition, claim.owner)) for claim in claims]
    counts = [sum(claim.owner == member for claim in claims) for member in members]
    assert sum(counts) == len(claims)
    assert max(counts) - min(counts) <= 1
    assert all(plan(me, {topic: members}, claims) == ([], []) for me in members), "nothing moves without need"


def test_a_lease_ends_and_one_from_before_a_clock_was_set_back_has_ended() -> None:
    assert is_alive(106, now=100, lease=6)
    assert not is_alive(100, now=100, lease=6)
    assert not is_alive(100 + 7200, now=100, lease=6)
