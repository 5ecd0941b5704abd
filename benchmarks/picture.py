"""`python -m benchmarks.picture SWEEP PICTURE`: draw latency and throughput over load."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import msgspec

from benchmarks.postgres.sweep import Point

LOOKS = {
    "outbox": ("Posthouse: outbox and relay", "#0b6e4f"),
    "direct": ("direct publish after the commit", "#8a8d91"),
    "poll": ("relay by hand, a look every 100 ms", "#d1495b"),
}


def draw(points: list[Point], picture: Path) -> None:
    """Two panels over the same loads: milliseconds, and commits per second."""
    figure, (delays, rates) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for way, (label, colour) in LOOKS.items():
        mine = [point for point in points if point.way == way]
        loads = [point.offered for point in mine]
        delays.plot(loads, [point.p50 for point in mine], "o-", color=colour, label=label)
        delays.plot(loads, [point.p99 for point in mine], "o:", color=colour, alpha=0.7)
        rates.plot(loads, [point.rate for point in mine], "o-", color=colour, label=label)
    most = max(point.offered for point in points)
    rates.plot([0, most], [0, most], "--", color="#c8c8c8", linewidth=1, label="as offered")
    delays.set_yscale("log")
    delays.yaxis.set_major_formatter("{x:g}")
    delays.yaxis.set_minor_formatter("{x:g}")
    delays.set_title("Commit to handler, ms (line: median, dots: 99th percentile)", fontsize=10)
    rates.set_title("Commits per second", fontsize=10)
    for panel in (delays, rates):
        panel.set_xlabel("events per second, offered")
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    rates.legend(frameon=False, fontsize=9)
    figure.savefig(picture, dpi=130)


if __name__ == "__main__":
    draw(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=list[Point]), Path(sys.argv[2]))
