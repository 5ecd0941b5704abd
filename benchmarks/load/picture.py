"""`python -m benchmarks.load.picture RUN PICTURE`: draw latency, rates and backlog over the time of a load."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import msgspec

from benchmarks.load.plan import Name
from benchmarks.load.result import Result, Second

GREEN, GREY, RED, BLUE = "#0b6e4f", "#8a8d91", "#d1495b", "#2f6690"
SHADES: dict[Name, str] = {"peak": "#f4e3c1", "saturation": "#f3d5d9"}


def draw(result: Result, picture: Path) -> None:
    """Three panels below each other, over the same seconds."""
    figure, panels = plt.subplots(3, 1, figsize=(11, 8.4), sharex=True, layout="constrained")
    delays, rates, backlog = panels
    seconds = result.seconds
    at = [one.at for one in seconds]
    waited = [one for one in seconds if one.p99 is not None]
    delays.plot([one.at for one in waited], [one.p50 for one in waited], color=GREEN, label="median")
    delays.plot(
        [one.at for one in waited], [one.p99 for one in waited], color=RED, linewidth=1, label="99th percentile"
    )
    delays.set_yscale("log")
    delays.yaxis.set_major_formatter("{x:g}")
    delays.set_title(
        f"Due to applied, ms, of the events that were due in each second (p99 at {result.factor:g}× ÷ base: {result.ratio:.2f})",
        fontsize=10,
    )
    rates.plot(at, [one.committed for one in seconds], color=GREY, linewidth=3, alpha=0.6, label="committed")
    rates.plot(at, [one.applied for one in seconds], color=GREEN, linewidth=1, label="applied")
    rates.set_title("Events per second", fontsize=10)
    backlog.plot(at, [one.backlog for one in seconds], color=BLUE, label="committed and not applied")
    samples = result.saturation.samples
    backlog.plot(
        [one.at - result.began for one in samples],
        [one.in_hand for one in samples],
        ".",
        color=RED,
        label="in hand of consumers",
    )
    backlog.set_yscale("symlog", linthresh=10)
    backlog.yaxis.set_major_formatter("{x:g}")
    backlog.set_title("Events on their way", fontsize=10)
    backlog.set_xlabel("seconds")
    for panel in panels:
        for name, first, last in spans(seconds):
            if name in SHADES:
                panel.axvspan(first, last + 1, color=SHADES[name], alpha=0.6, linewidth=0)
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    for name, first, last in spans(seconds):
        if name:
            delays.text(
                (first + last + 1) / 2,
                0.97,
                name,
                transform=delays.get_xaxis_transform(),
                ha="center",
                va="top",
                fontsize=9,
            )
    figure.savefig(picture, dpi=130)


def spans(seconds: Sequence[Second]) -> list[tuple[Name | None, int, int]]:
    """Each phase with its first and last second."""
    found = []
    for name, group in groupby(seconds, key=lambda one: one.phase):
        members = [one.at for one in group]
        found.append((name, members[0], members[-1]))
    return found


if __name__ == "__main__":
    draw(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Result), Path(sys.argv[2]))
