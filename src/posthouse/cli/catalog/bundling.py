"""`posthouse catalog bundle`: the contracts of a release as one file, and published where others fetch it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from posthouse.cli.catalog.freezing import Directory
from posthouse.cli.options import AsJson
from posthouse.cli.output import counted, print_json, say
from posthouse.clock import SystemClock
from posthouse.contracts.lock import LOCK
from posthouse.contracts.release import LATEST, Pointer, hash_of, packed, pointer_file, pointer_in
from posthouse.contracts.retirement import RETIRED
from posthouse.errors import ConfigurationError
from posthouse.governance.bundle import FOLDER, is_part, read_bundle
from posthouse.history.audit.place import Place, open_place
from posthouse.trust.signatures.halves import PRIVATE_FILE, Halves
from posthouse.trust.signatures.keys import read_keys
from posthouse.trust.signatures.material import CONTRACTS, pae
from posthouse.trust.signatures.signing import KEYS

TRIES = 5
"""How often somebody else may publish at the same moment."""

Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the bundle into this file.")]
To = Annotated[
    str,
    typer.Option(
        "--to", metavar="URL", help="Publish it: a folder, as file:///srv/contracts, or s3://…, gs://…, az://…."
    ),
]
SignedBy = Annotated[str, typer.Option("--key", metavar="ID", help="Sign what is published with this key.")]
PrivateFile = Annotated[
    Path | None, typer.Option("--private", envvar=PRIVATE_FILE, metavar="FILE", help="The file of the private halves.")
]
KeysFile = Annotated[
    Path, typer.Option("--keys", envvar=KEYS, metavar="FILE", help="The public file of keys. Default: keys.toml.")
]


class Bundled(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    bundle: str
    size: int
    schemas: int
    out: str = ""
    published: str = ""
    changed: bool = False
    key: str = ""


def bundle(
    folder: Directory = Path(FOLDER),
    out: Out = None,
    to: To = "",
    key: SignedBy = "",
    private: PrivateFile = None,
    keys: KeysFile = Path("keys.toml"),
    as_json: AsJson = False,
) -> None:
    """Write the frozen contracts as one file: the same contents give the same bytes, and it is called by their hash.

    With --to it is published beside those of before, and `latest.json` leads to it: do so before the release that publishes by it
    runs. Services with Settings(contracts=URL) fetch it when an event names a schema that they do not know.
    """
    files = _files_in(folder)
    schemas = len(read_bundle({path: data for path, data in files.items() if path != RETIRED}).schemas)
    data = packed(files)
    made = Bundled(bundle=hash_of(data), size=len(data), schemas=schemas)
    if out is not None:
        _write(out, data)
        made = msgspec.structs.replace(made, out=str(out))
    if to:
        place = open_place(to)
        changed = publish(place, data, _signer(key, private, keys))
        made = msgspec.structs.replace(made, published=place.name, changed=changed, key=key)
    _report(made, as_json)


class Signer(msgspec.Struct, frozen=True):
    """A private key, and its id."""

    id: str
    seed: bytes

    def sign(self, material: bytes) -> str:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # an extra

        signature = Ed25519PrivateKey.from_private_bytes(self.seed).sign(pae(CONTRACTS, material))
        return base64.b64encode(signature).decode()


def publish(place: Place, data: bytes, signer: Signer | None = None) -> bool:
    """Put a bundle there and have latest.json lead to it; whether that changed. The bundle comes first: whoever dies in between has
    published nothing. Raises AuditUnavailable."""
    name = hash_of(data)
    if not place.put(f"{name}.json", data):
        raise ConfigurationError(
            f"{name}.json in {place.name} is not the bundle that it is named after: somebody changed it. Take it away, and publish again"
        )
    for _ in range(TRIES):
        before = place.get(LATEST)
        known = None if before is None else pointer_in(before)
        signed_by = "" if signer is None else signer.id
        if known is not None and (known.bundle, known.key) == (name, signed_by):
            return False
        at = max(int(SystemClock().now() * 1000), 0 if known is None else known.at + 1)
        pointer = Pointer(bundle=name, size=len(data), at=at)
        if signer is not None:
            pointer = msgspec.structs.replace(pointer, key=signer.id, signature=signer.sign(pointer.material))
        if place.replace(LATEST, pointer_file(pointer), before):
            return True
    raise ConfigurationError(f"others publish in {place.name} all the time: try again")


def _signer(key: str, private: Path | None, keys: Path) -> Signer | None:
    if not key:
        return None
    if private is None:
        raise ConfigurationError("--key needs the file of the private halves: --private FILE")
    known = read_keys(keys).get(key)
    if known is None or known.use != "contracts":
        what = "is not in" if known is None else f"signs {known.use}, and no contracts, in"
        raise ConfigurationError(
            f"the key {key!r} {what} {keys}: `posthouse keys new {key} --use contracts --source /SERVICE`"
        )
    found = Halves(private).read()
    if key not in found:
        raise ConfigurationError(f"{private} has no private half of {key!r}")
    return Signer(key, found[key])


def _files_in(folder: Path) -> dict[str, bytes]:
    if not (folder / LOCK).is_file():
        raise ConfigurationError(f"{folder} holds no frozen catalogue: run `posthouse catalog freeze TARGET` first")
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    try:
        return {name: path.read_bytes() for name, path in found.items() if is_part(name) or name == RETIRED}
    except OSError as error:
        raise ConfigurationError(f"cannot read {error.filename}: {error.strerror}") from error


def _write(out: Path, data: bytes) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(data)
    except OSError as error:
        raise ConfigurationError(f"cannot write {out}: {error.strerror}") from error


def _report(made: Bundled, as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    say(f"{made.bundle}, {counted(made.schemas, 'schema')}, {made.size:,} bytes")
    if made.out:
        say(made.out)
    if made.published:
        said = "published in" if made.changed else "was published already in"
        say(f"{said} {made.published}{f', signed by {made.key}' if made.key else ''}", "green")
