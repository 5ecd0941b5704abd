"""A service that knows guests, in a process that counts its steps and ends itself at one of them:
`python -m tests.faults.erase_member register` or `… subject erase …`, with the step in ERASE_STEP and the moment in ERASE_MOMENT."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
from pathlib import Path
from typing import Any

from posthouse.cli import main
from tests.faults.kit.failpoint import Failpoint, Steps
from tests.kit.guests import Hotel

hotel = Hotel(Path.cwd(), lease=1.0)
service = hotel.service


async def register() -> None:
    async with hotel.app.running():
        await hotel.register("g1", "Ada-Lovelace")
        await hotel.register("g2", "Bob")
        while len(hotel.heard) < 2:  # noqa: ASYNC110 - by the consumer
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    if sys.argv[1:] == ["register"]:
        asyncio.run(register())
    else:
        moment: Any = os.environ["ERASE_MOMENT"]
        steps = Steps(Failpoint(step=int(os.environ["ERASE_STEP"]), moment=moment, opening=True))
        steps.install()
        atexit.register(lambda: Path("steps").write_text("\n".join(steps.taken)))
        main()
