"""Documents: payloads and states, for people. Colours cost a syntax highlighter, which only verbs that show one import."""

from __future__ import annotations

import msgspec
from rich.syntax import Syntax

from posthouse.cli.output import plain, say, stdout
from posthouse.events.limits import UNREADABLE
from posthouse.redaction import without_carried


def print_document(data: bytes) -> None:
    """A payload: JSON is laid out, anything else is shown as it is."""
    try:
        text = without_carried(msgspec.json.format(data, indent=2).decode())
    except UNREADABLE:
        say(data.decode(errors="backslashreplace"))
        return
    console = stdout()
    if console.is_terminal:
        console.print(Syntax(plain(text), "json", background_color="default", word_wrap=True))
    else:
        say(text)
