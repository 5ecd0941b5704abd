"""`posthouse catalog`: everything that services declare, shown, frozen into files, compared with these, and exported."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from posthouse.cli.catalog.bundling import bundle
from posthouse.cli.catalog.exporting import export
from posthouse.cli.catalog.freezing import check, freeze
from posthouse.cli.catalog.showing import show


class _ShowsByDefault(TyperGroup):
    """`posthouse catalog shop:orders` is `posthouse catalog show shop:orders`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ShowsByDefault,
    no_args_is_help=True,
    help="Show what services declare, freeze it into files, compare the two, bundle and export it.",
)

for verb in (show, freeze, check, bundle, export):
    app.command()(verb)
