"""Diagrams of sagas: every place that one can come to is drawn, and each arrow ends at something."""

from __future__ import annotations

import pytest

from melmastoon.reservation import reservation
from posthouse.console.diagrams import diagram
from posthouse.governance.outline import saga_entry

SAGAS = reservation.declared.saga_types


@pytest.mark.parametrize("name", sorted(SAGAS))
def test_a_saga_of_the_hotel_is_drawn_whole(name: str) -> None:
    entry = saga_entry(SAGAS[name])
    drawn = diagram(entry)
    ids = [node.id for node in drawn.nodes]
    assert len(set(ids)) == len(ids)
    assert {end for edge in drawn.edges for end in (edge.source, edge.target)} <= set(ids)
    for method in entry.of_kind("starts", "step", "join"):
        assert f"step:{method.name}" in ids
    for method in entry.of_kind("undo"):
        assert f"undo:{method.undoes}" in ids
    reached, ahead = {"start"}, ["start"]
    while ahead:
        place = ahead.pop()
        new = {edge.target for edge in drawn.edges if edge.source == place} - reached
        reached |= new
        ahead += new
    assert not {one for one in ids if one.startswith("step:")} - reached, "every step can be come to"
    assert {node.mark for node in drawn.nodes} == {""}
