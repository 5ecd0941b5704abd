"""Breach: one place where a producer and a consumer do not mean the same."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["sample", "decoder", "consumer"]


class Breach(msgspec.Struct, frozen=True, kw_only=True):
    """`sample`: a message that somebody wrote down does not fit. `decoder`: the code does not read what its schema allows.
    `consumer`: a consumer expects what the producer does not promise. `who` is a file, a class or a consumer; `path` a JSON
    Pointer; `example` a message that shows it."""

    kind: Kind
    who: str
    subject: str
    sentence: str
    path: str = ""
    example: object = msgspec.UNSET
