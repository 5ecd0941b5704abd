"""What a `kafka:` URL may say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult

import msgspec

from posthouse.brokers.kafka.broker import KafkaBroker
from posthouse.brokers.options import options_of, said_in
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.local.tls import Files, Names, Tls, contradicts, proven

FILES = Names("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


class KafkaOptions(Tls, frozen=True):
    """What may follow the `?`: parameters of KafkaBroker, and TLS. Names with a dot are the driver's."""

    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    replicas: Annotated[int, msgspec.Meta(ge=1, le=15)] = 1
    min_insync: Annotated[int, msgspec.Meta(ge=1, le=15)] | None = None
    retention: Annotated[float, msgspec.Meta(ge=1)] | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    lease: Annotated[float, msgspec.Meta(ge=1)] = 10.0


def from_url(parts: SplitResult, clock: Clock) -> KafkaBroker:
    """Raises ConfigurationError with every problem."""
    problems: list[str] = []
    said = said_in(parts)
    driver = {name: said.pop(name) for name in tuple(said) if "." in name}
    options = options_of("kafka", said, KafkaOptions(), problems)
    if not parts.netloc or "@" in parts.netloc:
        problems.append(
            f"{parts._replace(query='').geturl()!r} names no servers: write kafka://a:9092,b:9092 and "
            "sasl.username=…&sasl.password=… behind the `?`"
        )
    driver |= secured(options, driver, problems)
    if problems:
        raise ConfigurationError(*problems)
    return KafkaBroker(
        parts.netloc,
        clock=clock,
        partitions=options.partitions,
        replicas=options.replicas,
        min_insync=options.min_insync,
        retention=options.retention,
        timeout=options.timeout,
        lease=options.lease,
        driver=driver,
    )


def secured(tls: Tls, driver: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """What the driver is told of TLS; it comes in beside SASL where somebody signs in so."""
    if tls.tls is None and not tls.on:
        _look(driver, problems)
        return {}
    both = [name for name in driver if name == "security.protocol" or name.startswith("ssl.")]
    if both:
        problems.append(f"the URL says {both[0]} and also tls, which mean the same: leave one out")
    if both or contradicts(tls, problems) or not tls.on or proven(tls.files, problems) is None:
        return {}
    signs_in = any(name.startswith("sasl.") for name in driver)
    named = zip(FILES, (tls.tls_ca, tls.tls_cert, tls.tls_key or tls.tls_cert), strict=True)
    return {"security.protocol": "SASL_SSL" if signs_in else "SSL"} | {name: path for name, path in named if path}


def _look(driver: Mapping[str, str], problems: list[str]) -> None:
    """The driver's own words for the files: it would name none that it cannot read."""
    ca, cert, key = (driver.get(name) for name in FILES)
    if ca is not None and (ca == "probe" or Path(ca).is_dir()):
        ca = None
    if ca or cert or key:
        proven(Files(ca, cert, key), problems, FILES, password=driver.get("ssl.key.password", ""))
