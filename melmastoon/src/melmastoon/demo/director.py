"""The director: plays the script in a world, scene by scene, and lets everything settle after each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import get_args

from melmastoon.demo.acts.booking import BOOKING
from melmastoon.demo.acts.desk import DESK
from melmastoon.demo.acts.houses import morning, night, opening
from melmastoon.demo.acts.trust import late
from melmastoon.demo.cast import Booking
from melmastoon.demo.script import DAY, Act, Do, Scene, script
from melmastoon.demo.stage import Stage
from melmastoon.demo.world import World
from posthouse import Reject, RetryNow
from posthouse.errors import DeskError

ACTS = {**BOOKING, **DESK}
ROUNDS = {"morning": morning, "night": night, "late": late}
assert {*ACTS, *ROUNDS} == set(get_args(Do)), "every act has somebody who plays it"

Show = Callable[[Scene, Stage], None]


def _nobody_looks(scene: Scene, stage: Stage) -> None:
    pass


async def play(world: World, cast: Sequence[Booking], show: Show = _nobody_looks) -> None:
    """Everything, from the opening of the houses until two days after the last guest has left."""
    first = datetime.fromtimestamp(world.now(), UTC).date()
    midnight = datetime(first.year, first.month, first.day, tzinfo=UTC).timestamp()
    stage = Stage(world=world, first_day=first, midnight=midnight, cast=cast)
    await opening(stage)
    await world.settle()
    for scene in script(cast):
        await world.live_up_to(midnight + scene.at)
        if not await stage.wants(scene):
            continue
        await world.until(midnight + scene.at)
        show(scene, stage)
        if any(await asyncio.gather(*(_played(stage, act) for act in scene.acts))):
            await world.settle()
    await world.until(world.now() + 2 * DAY)


async def _played(stage: Stage, act: Act) -> bool:
    """Whether anything was done."""
    if act.booking is None:
        await ROUNDS[act.do](stage)
        return True
    try:
        return await ACTS[act.do](stage, act.booking)
    except (Reject, RetryNow, DeskError):
        if stage.world.exact:
            raise
        return False
