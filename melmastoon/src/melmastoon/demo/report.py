"""The figures of the demonstration, for people."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from melmastoon.demo.figures import Figures
from posthouse.cli.output import Cell, counted, print_table, say, stdout

WIDE = 60
"""Columns of the terminal for one subject with its number."""


def print_figures(figures: Figures) -> None:
    """All of them: what happened, then what must hold."""
    say("\nBookings, as they ended:")
    _print_counts(figures.bookings, "booking")
    say("\nSagas:")
    print_table(
        ["saga", "ended", "count"],
        [[saga, status, count] for saga, counts in figures.sagas_by_kind.items() for status, count in counts.items()],
    )
    say("\nCompensations, and why:")
    _print_counts(figures.compensations, "saga")
    say("\nSagas that rested with a part undone, until somebody or a late answer completed them:")
    _print_counts(figures.partials, "saga")
    say(
        f"\n{counted(figures.alerts, 'alert')} to people on call, {counted(figures.begun_again, 'saga')} begun again after "
        f"being called off, {counted(figures.stays_extended, 'stay')} made longer by guests who were in."
    )
    say(
        f"\n{counted(figures.erased, 'guest')} erased: {counted(figures.noise, 'value')} about them nobody can read any more. "
        f"A forged payment was quarantined by {counted(figures.forged, 'consumer')}."
    )
    say("\nMoney in cents: charged - credited = captured - refunded + cash + open")
    names = ["charged", "credited", "captured", "refunded", "cash", "open"]
    rows: list[list[Cell]] = [
        [tenant, *(f"{getattr(money, name):,}" for name in names), _verdict(money.balanced)]
        for tenant, money in figures.money.items()
    ]
    print_table(["tenant", *names, ""], rows)
    _print_events(figures.events)
    _print_verdicts(figures)


def _print_counts(counts: Mapping[str, int], thing: str) -> None:
    print_table([thing, "count"], [[name, count] for name, count in counts.items()])


def _print_events(events: Mapping[str, int]) -> None:
    said = sum(1 for count in events.values() if count)
    say(f"\nFacts by subject ({said} of {len(events)} were said):")
    named = [(name.removeprefix("melmastoon."), count) for name, count in events.items()]
    beside = min(3, max(1, stdout().width // WIDE))
    height = -(-len(named) // beside)
    rows: list[list[Cell]] = []
    for row in range(height):
        cells: list[Cell] = []
        for name, count in named[row::height]:
            cells += [Text(name, "" if count else "dim"), Text(str(count), justify="right")]
        rows.append(cells + [""] * (2 * beside - len(cells)))
    print_table(["subject", "facts"] * beside, rows)


def _print_verdicts(figures: Figures) -> None:
    say("\nWhat must hold:")
    checks: list[tuple[str, int]] = [
        ("bookings whose money does not add up", 0 if figures.money_balanced else 1),
        ("nights sold twice", figures.nights_oversold),
        ("keys that outlive their stay", figures.keys_lingering),
        ("sagas without a named end", figures.sagas_unfinished),
        ("facts lost", figures.lost),
        ("facts applied twice", figures.duplicated),
        ("keys applied out of order", figures.out_of_order),
        ("facts held", figures.held),
        ("places that tell who was erased", figures.readable),
    ]
    print_table(["", "found", ""], [[name, count, _verdict(count == 0)] for name, count in checks])
    for finding in figures.findings:
        say(f"• {finding}", style="red")
    pace = (
        f"{figures.simulated_days:g} days in {figures.seconds:g} s"
        if figures.simulated_days
        else f"{figures.seconds:g} s"
    )
    say(
        f"\n{counted(figures.facts, 'fact')} applied {figures.applied:,} times, "
        f"{counted(figures.kills, 'process').replace('processs', 'processes')} killed, {pace}: "
        + ("it adds up" if figures.adds_up else "it does NOT add up"),
        style="green" if figures.adds_up else "bold red",
    )


def _verdict(fine: bool) -> Text:
    return Text("✓", "green") if fine else Text("✗", "bold red")
