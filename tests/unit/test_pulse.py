"""Pulse: who gets on is left alone however long it takes, and who does not is named."""

from __future__ import annotations

import asyncio

from posthouse.pulse import Pulse, alive


def test_what_takes_longer_than_the_patience_is_named() -> None:
    pulse = Pulse(patience=10.0)
    with pulse.doing("knocking", longer=5.0):
        assert pulse.look(15.0) == ""
        assert pulse.look(1.0) == "knocking for 16 s"
    assert pulse.look(100.0) == ""


def test_a_block_that_is_alive_again_and_again_is_never_late() -> None:
    pulse = Pulse(patience=10.0)
    with pulse.doing("applying"):
        for _ in range(100):
            assert pulse.look(9.0) == ""
            alive()
        assert pulse.look(11.0) == "applying for 11 s"


def test_a_sign_of_life_counts_for_the_block_around_it_and_for_no_other() -> None:
    pulse = Pulse(patience=10.0)
    with pulse.doing("outside"):
        with pulse.doing("inside"):
            pulse.look(9.0)
            alive()
        assert pulse.look(2.0) == "outside for 11 s"
        alive()
        assert pulse.look(9.0) == ""
    alive()


async def test_tasks_inside_a_block_give_signs_of_life_and_those_beside_it_do_not() -> None:
    pulse = Pulse(patience=10.0)

    async def get_on() -> None:
        alive()

    with pulse.doing("publishing"):
        pulse.look(9.0)
        await asyncio.gather(get_on(), get_on())
        assert pulse.look(9.0) == ""

    began = asyncio.Event()

    async def hang() -> None:
        with pulse.doing("hanging"):
            began.set()
            await asyncio.Event().wait()

    hanging = asyncio.create_task(hang())
    await began.wait()
    with pulse.doing("working beside it"):
        for _ in range(2):
            said = pulse.look(9.0)
            alive()
    assert said == "hanging for 18 s"
    hanging.cancel()
    await asyncio.wait([hanging])
