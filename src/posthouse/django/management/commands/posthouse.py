"""`manage.py posthouse …`: the command line, with Django set up."""

from __future__ import annotations

import sys
from pathlib import Path

from django.core.management.base import BaseCommand

from posthouse.cli import main


class Command(BaseCommand):
    """It takes what `posthouse` takes."""

    def run_from_argv(self, argv: list[str]) -> None:
        """All that follows is for our own parser."""
        sys.argv = [f"{Path(argv[0]).name} posthouse", *argv[2:]]
        main()
