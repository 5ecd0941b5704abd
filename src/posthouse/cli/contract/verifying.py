"""`posthouse contract verify`: samples, decoders, handlers and pacts against the schemas of producers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from posthouse.cli.catalog.freezing import Directory
from posthouse.cli.contract.sources import Producer, pacts, places, producers, samples
from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.options import AsJson
from posthouse.cli.output import counted, plain, print_facts, print_json, say
from posthouse.cli.target import load_all
from posthouse.contracts import EventType
from posthouse.errors import ConfigurationError, ContractError, did_you_mean
from posthouse.governance.bundle import FOLDER
from posthouse.governance.folder import read_folder
from posthouse.governance.listing import catalogue_of
from posthouse.governance.pacts import (
    Breach,
    Expectation,
    expectations_of,
    verify_decoder,
    verify_expectation,
    verify_sample,
)

SAMPLES = "samples"

Services = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TARGET]...", help="module:service; its decoders and handlers are checked too."),
]
SampleFolder = Annotated[
    Path | None,
    typer.Option(
        "--samples", metavar="FOLDER", help="Messages by place, orders/order/placed/v1/*.json. [event-schemas/samples]"
    ),
]
PactFolder = Annotated[
    Path | None, typer.Option("--pacts", metavar="FOLDER", help="Pact files of consumers elsewhere.")
]


class Verified(msgspec.Struct):
    """What was looked at, what speaks against it, and what could not be looked at."""

    breaches: list[Breach] = []
    samples: int = 0
    decoders: int = 0
    expectations: int = 0
    unknown: list[str] = []


def verify(
    targets: Services = None,
    folder: Directory = Path(FOLDER),
    sample_folder: SampleFolder = None,
    pact_folder: PactFolder = None,
    as_json: AsJson = False,
) -> None:
    """Do producers send what consumers expect? Ends with code 1 and an example for each place where they do not.

    Samples must fit the schemas, code must read what its schema allows (examples are made from it), and each handler and
    each pact must get along with all that its producer may send.
    """
    services = load_all(targets) if targets else []
    code = catalogue_of(services) if services else None
    bundle = read_folder(folder)
    known = producers(bundle, code)
    types = {event_type.name: event_type for service in services for event_type in service.declared.catalogue}
    if not known and not types:
        raise ConfigurationError(
            f"there is nothing to verify: {folder} holds no frozen schemas, and no TARGET was given"
        )
    verified = Verified()
    chosen = _sample_folder(sample_folder, folder)
    if chosen is not None:
        _samples(verified, chosen, places(bundle, code), known, types)
    for subject, event_type in sorted(types.items()):
        if event_type.payload.schema.format == "json" and subject in known and not event_type.external:
            verified.decoders += 1
            verified.breaches += verify_decoder(subject, known[subject].schema.text, event_type.payload)
    expected = [*(expectations_of(code, types) if code is not None else ()), *_pacts(pact_folder)]
    _expectations(verified, expected, known)
    _report(verified, as_json)


def _sample_folder(given: Path | None, folder: Path) -> Path | None:
    if given is not None and not given.is_dir():
        raise ConfigurationError(f"there is no folder {given}")
    beside = folder / SAMPLES
    return given or (beside if beside.is_dir() else None)


def _pacts(folder: Path | None) -> Iterator[Expectation]:
    if folder is None:
        return
    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder {folder}")
    yield from pacts(folder)


def _samples(
    verified: Verified,
    folder: Path,
    subjects: Mapping[str, str],
    known: Mapping[str, Producer],
    types: Mapping[str, EventType[object]],
) -> None:
    for sample in samples(folder):
        subject = subjects.get(sample.place)
        if subject is None or subject not in known:
            raise ConfigurationError(
                f"{sample.file}: no event lies at {sample.place!r}.{did_you_mean(sample.place, subjects)}"
            )
        if known[subject].schema.format != "json":
            verified.unknown.append(f"{sample.file}: {subject} is not JSON")
            continue
        verified.samples += 1
        who = str(sample.file)
        found = list(verify_sample(who, subject, known[subject].schema.text, sample.message))
        if not found and subject in types:
            found = list(_decoded(who, types[subject], sample.message))
        verified.breaches += found


def _decoded(who: str, event_type: EventType[object], message: object) -> Iterator[Breach]:
    try:
        event_type.payload.decode(msgspec.json.encode(message))
    except ContractError as error:
        yield Breach(kind="sample", who=who, subject=event_type.name, sentence=f"{error}.", example=message)


def _expectations(verified: Verified, expected: Sequence[Expectation], known: Mapping[str, Producer]) -> None:
    services = {producer.service for producer in known.values()}
    for one in expected:
        producer = known.get(one.subject)
        if producer is not None and producer.schema.format == "json":
            verified.expectations += 1
            verified.breaches += verify_expectation(one, producer.schema.text)
        elif producer is None and one.provider in services:
            sentence = f"{one.provider} has no such event.{did_you_mean(one.subject, known)}"
            verified.breaches.append(Breach(kind="consumer", who=one.who, subject=one.subject, sentence=sentence))
        else:
            reason = "its schema is not here" if producer is None else "it is not JSON"
            verified.unknown.append(f"{one.who} reads {one.subject}: not checked, {reason}")


def _report(verified: Verified, as_json: bool) -> None:
    if as_json:
        print_json({"agree": not verified.breaches, **msgspec.structs.asdict(verified)})
    else:
        _show(verified)
    if verified.breaches:
        raise typer.Exit(CHECK_FAILED)


def _show(verified: Verified) -> None:
    for breach in verified.breaches:
        head = f"{plain(breach.who)}  {plain(breach.subject)}"
        say(Text.assemble(("✗", "bold red"), " ", (head, "bold"), f"  {breach.kind}"))
        example = "" if breach.example is msgspec.UNSET else msgspec.json.encode(breach.example).decode()
        print_facts([("  where", breach.path), ("  what", breach.sentence), ("  example", example)])
        say("")
    for sentence in verified.unknown:
        say(sentence, "yellow")
    looked = (
        f"{counted(verified.samples, 'sample')}, {counted(verified.decoders, 'decoder')}, "
        f"{counted(verified.expectations, 'expectation')}"
    )
    if verified.breaches:
        say(f"{counted(len(verified.breaches), 'disagreement')}; {looked}", "bold red")
    else:
        say(f"all agree: {looked}", "bold green")
