"""Saga: a long-running process as a class. Its fields are its durable state, its methods what it does."""

from __future__ import annotations

from typing import Any, dataclass_transform

import msgspec


class _Keywords(msgspec.StructMeta):
    """Fields by keyword only: those with defaults may stand before those without."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> _Keywords:
        options.setdefault("kw_only", True)
        made: _Keywords = super().__new__(mcls, name, bases, namespace, **options)
        return made


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class Saga(msgspec.Struct, metaclass=_Keywords):
    """The state of one process. Subclass it, annotate the fields, and mark the methods with `starts`, `step`, `on`, `undo`
    and `deadline`. Methods are plain or asynchronous, change the fields of `self`, and say the rest through their turn.
    What is added between releases needs a default: stored states are read with the class as it is now.
    """
