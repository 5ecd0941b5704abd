"""TLS: the same words behind the `?` of every URL, whatever its driver calls them. Files are looked at before anything connects."""

from __future__ import annotations

import difflib
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlencode

import msgspec

from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.local.url import joined, split
from posthouse.options import said_twice

BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where systems keep the authorities that they believe: PostgreSQL's drivers want one file."""


class Tls(msgspec.Struct, frozen=True):
    """What every URL may say. `tls` encrypts, and the server must prove its name to the system's authorities; `tls_ca` is a file of
    other authorities, believed instead; `tls_cert` and `tls_key` are ours, for a server that asks who we are. Naming a file
    turns it on; `false` says that plain text is meant."""

    tls: bool | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    @property
    def on(self) -> bool:
        return self.tls or (self.tls is None and any(self.files))

    @property
    def files(self) -> Files:
        return Files(self.tls_ca, self.tls_cert, self.tls_key)


class Files(NamedTuple):
    """In PEM. The key may stand in the file of the certificate."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


class Names(NamedTuple):
    """What somebody calls the files."""

    ca: str = "tls_ca"
    cert: str = "tls_cert"
    key: str = "tls_key"


OURS = Names()
LIBPQ = Names("sslrootcert", "sslcert", "sslkey")
SSL = (
    *LIBPQ, "sslmode", "sslpassword", "sslcrl", "sslcrldir", "sslnegotiation", "sslcompression", "sslcertmode", "sslsni",
    "ssl_min_protocol_version", "ssl_max_protocol_version",
)  # fmt: skip
"""What libpq says of TLS."""


def context_of(tls: Tls, problems: list[str]) -> ssl.SSLContext | None:
    """TLS as it was asked for, with server and name proven; None where it was not, or where sentences were added to `problems`."""
    if contradicts(tls, problems) or not tls.on:
        return None
    return proven(tls.files, problems)


def contradicts(tls: Tls, problems: list[str]) -> bool:
    """Whether it says both."""
    named = [name for name, given in zip(OURS, tls.files, strict=True) if given is not None]
    if tls.tls is not False or not named:
        return False
    problems.append(f"tls=false is plain text, and {named[0]} is for TLS: leave one out")
    return True


def proven(files: Files, problems: list[str], names: Names = OURS, *, password: str = "") -> ssl.SSLContext | None:
    """A context that uses these files; None, and sentences in `problems`, where they are not what they should be."""
    found = [_unread(name, path) for name, path in zip(names, files, strict=True) if path is not None]
    wrong = [problem for problem in found if problem]
    if files.key is not None and files.cert is None:
        wrong.append(f"{names.key} needs {names.cert}, the certificate that it belongs to")
    context = None
    if not wrong:
        context, wrong = _loaded(files, names, password)
    problems += wrong
    return None if wrong else context


def driver_url(url: str) -> str:
    """The URL of a PostgreSQL as its drivers take it: whoever hands one to a driver asks here first. Raises ConfigurationError.

    What drivers do not know they pass on as a setting of the server, after the connection was made: a word of TLS that was
    misspelt would be told in plain text.
    """
    problems: list[str] = []
    parts = with_libpq_words(split(url), problems)
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if name not in (*Tls.__struct_fields__, *SSL) and _means_tls(name):
            problems.append(f"{name!r} is no option of a postgresql URL.{did_you_mean(name, Tls.__struct_fields__)}")
    if problems:
        raise ConfigurationError(*problems)
    return joined(parts)


def _means_tls(name: str) -> bool:
    plain = name.lower().replace("-", "_")
    return plain.startswith(("tls", "ssl")) or bool(
        difflib.get_close_matches(plain, Tls.__struct_fields__, cutoff=0.75)
    )


def with_libpq_words(parts: SplitResult, problems: list[str]) -> SplitResult:
    """The URL of a PostgreSQL in the words of its drivers. What they would stumble on is told now: a file that there is not would
    look to them like a server that is away."""
    said = dict(parse_qsl(parts.query, keep_blank_values=True))
    if said_twice(parts.query):
        return parts  # somebody else tells
    given = {name: said.pop(name) for name in Tls.__struct_fields__ if name in said}
    try:
        tls = msgspec.convert(given, Tls, strict=False)
    except msgspec.ValidationError as error:
        problems.append(f"an option of the postgresql URL does not fit: {error}")
        return parts
    if given:
        both = [name for name in ("sslmode", *LIBPQ) if name in said]
        if both:
            problems.append(f"the URL says {both[0]} and also {next(iter(given))}, which mean the same: leave one out")
            return parts
        if contradicts(tls, problems):
            return parts
        said |= _libpq(tls, problems)
    files = Files(*(said.get(name) for name in LIBPQ))
    if any(files) and files.ca != "system":
        shown = OURS if given else LIBPQ
        proven(files, problems, shown, password=said.get("sslpassword", ""))
    return parts._replace(query=urlencode(said)) if given else parts


def authorities(environ: Mapping[str, str] = os.environ) -> str | None:
    """The file of those whom this system believes, if it has one."""
    found = (environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *BUNDLES)
    return next((path for path in found if path and Path(path).is_file()), None)


def _libpq(tls: Tls, problems: list[str]) -> dict[str, str]:
    if not tls.on:
        return {"sslmode": "disable"}
    ca = tls.tls_ca or authorities()
    if ca is None:
        problems.append("tls=true: this system has no file of authorities: name one with tls_ca=…")
    named = {"sslrootcert": ca, "sslcert": tls.tls_cert, "sslkey": tls.tls_key or tls.tls_cert}
    return {"sslmode": "verify-full"} | {name: path for name, path in named.items() if path is not None}


def _unread(name: str, path: str) -> str:
    """Why a file cannot be read, or nothing."""
    try:
        Path(path).read_bytes()
    except FileNotFoundError:
        return f"{name}={path} cannot be used: there is no such file"
    except OSError as error:
        return f"{name}={path} cannot be used: {error.strerror or error}, for the user that runs this"
    return ""


def _loaded(files: Files, names: Names, password: str) -> tuple[ssl.SSLContext, list[str]]:
    wrong = []
    try:
        context = ssl.create_default_context(cafile=files.ca)
    except OSError:
        context = ssl.create_default_context()
        wrong.append(f"{names.ca}={files.ca} cannot be used: it holds no certificate in PEM")
    if files.cert is not None:
        try:
            context.load_cert_chain(files.cert, files.key, password=lambda: password)
        except OSError as error:
            wrong.append(_no_pair(files, names, error))
    return context, wrong


def _no_pair(files: Files, names: Names, error: OSError) -> str:
    reason = getattr(error, "reason", "") or ""
    cert, key = f"{names.cert}={files.cert}", f"{names.key}={files.key}"
    if "MISMATCH" in reason:
        return f"{key if files.key else cert} is not the key of {cert}: they are of different pairs"
    if b"-----BEGIN CERTIFICATE" not in Path(files.cert or "").read_bytes():
        return f"{cert} cannot be used: it holds no certificate in PEM"
    held = Path(files.key or files.cert or "").read_bytes()
    if b"PRIVATE KEY-----" not in held:
        return f"{key if files.key else cert} cannot be used: it holds no private key in PEM; name it with {names.key}"
    if b"ENCRYPTED" in held:
        return f"{key if files.key else cert} cannot be used: the key has a passphrase; keep it without one, readable by its user alone"
    return f"{cert} cannot be used: {reason or error}"
