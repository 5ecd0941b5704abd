"""What validation costs on the hot path, beside the JSON decoding that any reader has to do: `python -m benchmarks.validation`.

The typed decoder validates while it decodes. Its price is what it takes longer than a decoder that validates nothing; the
look at the schema URI comes on top.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import timeit
from collections.abc import Callable

import jsonschema_rs
import msgspec
import pydantic

from posthouse import Event, Service
from posthouse.contracts import event_type_of, payload_of
from posthouse.seam import SchemaGuard

ROUNDS = 60
CALLS = 500

service = Service("orders", namespace="shop")


@dataclasses.dataclass(frozen=True)
class Line:
    sku: str
    count: int
    cents: int
    note: str | None = None


@service.event("order.placed.v1", key="order_id")
@dataclasses.dataclass(frozen=True)
class OrderPlaced:
    order_id: str
    customer: str
    email: str
    placed_at: datetime.datetime
    currency: str
    total_cents: int
    tax_cents: int
    paid: bool
    discount: float
    lines: list[Line]
    tags: dict[str, str]
    comment: str | None = None


class LineModel(pydantic.BaseModel):
    sku: str
    count: int
    cents: int
    note: str | None = None


class OrderModel(pydantic.BaseModel):
    order_id: str
    customer: str
    email: str
    placed_at: datetime.datetime
    currency: str
    total_cents: int
    tax_cents: int
    paid: bool
    discount: float
    lines: list[LineModel]
    tags: dict[str, str]
    comment: str | None = None


def sample() -> OrderPlaced:
    return OrderPlaced(
        order_id="o-4711",
        customer="c-0815",
        email="someone@example.org",
        placed_at=datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC),
        currency="EUR",
        total_cents=12_950,
        tax_cents=2_050,
        paid=True,
        discount=0.05,
        lines=[Line(f"sku-{n}", n, 100 * n) for n in range(1, 9)],
        tags={"channel": "web", "campaign": "spring"},
    )


def readings() -> dict[str, float]:
    """Microseconds of each step at its best, measured in turns: what comes on top of that is the machine's mood."""
    event_type = event_type_of(OrderPlaced)
    data = event_type.payload.encode(sample())
    plain = msgspec.json.Decoder()
    validator = jsonschema_rs.validator_for(json.loads(event_type.payload.schema.text))
    model = payload_of(OrderModel)
    sight = SchemaGuard()
    event = Event(id="1", type=event_type.name, source="/", data=data, time="", schema=event_type.schema)
    value = plain.decode(data)
    steps: dict[str, Callable[[], object]] = {
        "decode without validation (msgspec)": lambda: plain.decode(data),
        "decode without validation (json)": lambda: json.loads(data),
        "decode and validate (dataclass)": lambda: event_type.payload.decode(data),
        "decode and validate (pydantic)": lambda: model.decode(data),
        "look at the schema URI": lambda: sight.check(event_type, event),  # type: ignore[arg-type]
        "jsonschema-rs on the decoded value": lambda: validator.is_valid(value),
    }
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            taken[name].append(timeit.timeit(step, number=CALLS) / CALLS * 1e6)
    return {name: min(times) for name, times in taken.items()}


def main() -> None:
    found = readings()
    for name, microseconds in found.items():
        print(f"{name:40} {microseconds:8.2f} µs")
    bare = found["decode without validation (msgspec)"]
    typed = found["decode and validate (dataclass)"] + found["look at the schema URI"] - bare
    print(f"validation is {typed / bare:.2f} of the decoding that it comes with")


if __name__ == "__main__":
    main()
