"""Terms: what an owner says about an event beside its fields."""

from __future__ import annotations

from datetime import date
from typing import Literal, get_args

import msgspec

from posthouse.errors import ConfigurationError, did_you_mean

Retention = Literal["hot", "warm", "cold"]
"""How long the archive keeps it: for operation (30 days), for analysis (a year), for the law (7 years)."""

Idempotency = Literal["optional", "required"]
"""Whether a fact may be published without an idempotency key."""

SchemaFormat = Literal["json", "avro", "protobuf"]
"""The language of a schema, and with it the encoding of the payload."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """`owner` is the team that answers for the event, empty where nobody said. `residency` names the region that its data
    must not leave; None means anywhere. `deprecated` is the day from which no new consumer should start. `cross_tenant`: it is
    about several tenants, or for readers of all of them. `idempotency`: `required` refuses a fact that has no idempotency key."""

    retention: Retention = "hot"
    owner: str = ""
    residency: str | None = None
    deprecated: date | None = None
    cross_tenant: bool = False
    idempotency: Idempotency = "optional"

    def problems(self) -> list[str]:
        """What cannot be meant, one sentence each."""
        problems = []
        if self.retention not in (known := get_args(Retention)):
            problems.append(f"there is no retention class {self.retention!r}.{did_you_mean(self.retention, known)}")
        if self.idempotency not in (known := get_args(Idempotency)):
            problems.append(
                f"idempotency is one of {', '.join(known)}, not {self.idempotency!r}.{did_you_mean(self.idempotency, known)}"
            )
        if self.residency is not None and not str(self.residency).strip():
            problems.append(f"residency is the name of a region, or None for anywhere, not {self.residency!r}")
        if self.deprecated is not None and not isinstance(self.deprecated, date):
            problems.append(f"deprecated is a day, as in date(2027, 1, 31), not {self.deprecated!r}")
        return problems

    def checked(self, what: str) -> Terms:
        """Itself; ConfigurationError with every problem otherwise."""
        if problems := self.problems():
            raise ConfigurationError(*(f"{what}: {problem}" for problem in problems))
        return self
