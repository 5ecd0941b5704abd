"""Papers: the texts of a release. None of them names a host: where packages come from is for the one who installs to say."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from release.parts import Part

HEAD = """\
# The versions that this release was tested with, and the files of them that were seen, for {platform}.
# pip install --require-hashes -r constraints.txt, then --no-deps the wheel of Posthouse.
"""


def constraints(parts: Sequence[Part], hashes: Mapping[str, str], platform: str) -> str:
    """What pip checks each file against. Raises KeyError for a part whose file nobody has seen."""
    lines = [f"{part.name}=={part.version} --hash=sha256:{hashes[part.name]}" for part in parts]
    return HEAD.format(platform=platform) + "".join(f"{line}\n" for line in lines)


def bill(parts: Sequence[Part], hashes: Mapping[str, str], moment: int) -> str:
    """CycloneDX 1.6 in JSON: the first part, and what it consists of. The same parts at the same moment are the same text."""
    known = {part.name: _component(part, hashes.get(part.name)) for part in parts}
    root, *rest = parts
    seed = "\n".join(f"{part.name}=={part.version} {hashes.get(part.name, '')}" for part in parts)
    made = Bom(components=[known[part.name] for part in rest], serial_number=uuid5(NAMESPACE_URL, seed))
    made.metadata.component = known[root.name]
    made.metadata.timestamp = datetime.fromtimestamp(moment, UTC)
    for part in parts:
        made.register_dependency(known[part.name], [known[name] for name in part.needs])
    return str(JsonV1Dot6(made).output_as_string(indent=2)) + "\n"


def checksums(files: Sequence[Path]) -> str:
    """As `sha256sum --check` reads it."""
    return "".join(f"{sha256_of(file)}  {file.name}\n" for file in sorted(files))


def sha256_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _component(part: Part, sha256: str | None) -> Component:
    licence = LicenseFactory().make_from_string(part.licence) if part.licence else None
    return Component(
        name=part.name,
        version=part.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{part.name}@{part.version}",
        purl=PackageURL("pypi", None, part.name, part.version),
        licenses=[licence] if licence else [],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else [],
    )
