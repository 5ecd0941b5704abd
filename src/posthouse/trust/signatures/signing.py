"""Signing: what an application says about signatures."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path, PurePath

from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.options import Options
from posthouse.seam.seam import Seam
from posthouse.trust.signatures.modes import asked_in

KEYS, VERIFY = "POSTHOUSE_SIGNING", "POSTHOUSE_SIGNING_VERIFY"
PRIVATE, PRIVATE_FILE = "POSTHOUSE_SIGNING_PRIVATE", "POSTHOUSE_SIGNING_PRIVATE_FILE"
"""Variables of the environment: the public file, the modes; private keys themselves, or the file that has them."""


class Signing(Options):
    """Sign what is published, and ask for signatures of what is read."""

    keys: str | PurePath
    """The public file, as `posthouse keys` writes it. A running process sees a change within a second or so."""
    private: str | PurePath | None = None
    """The file with the private keys of the services here. None: what the environment says in POSTHOUSE_SIGNING_PRIVATE_FILE or
    POSTHOUSE_SIGNING_PRIVATE; without any nothing is signed, and only verified."""
    verify: Mapping[str, str] = dataclasses.field(default_factory=lambda: {"*": "require"})
    """By topic pattern: `off`, `warn` or `require`, also `require since 2026-11-18T12:00:00Z`. The first that fits counts, and topics
    that none fits are not asked."""

    def conflicts(self) -> list[str]:
        problems = []
        for pattern, text in self.verify.items():
            try:
                asked_in(text)
            except ValueError as error:
                problems.append(f"Signing: verify[{pattern!r}]={text!r}: {error}")
        return problems

    def applied(self, seam: Seam, clock: Clock, service: str) -> Seam:
        """The seam that signs and verifies so; the one given stays as it is. ConfigurationError for keys that cannot be used."""
        try:
            from posthouse.trust.signatures.keyring import Keyring  # an extra, and only here is it needed
            from posthouse.trust.signatures.modes import Modes
            from posthouse.trust.signatures.sealing import Sealing
        except ImportError as error:
            raise ConfigurationError(
                "Signing needs the package cryptography: pip install 'posthouse[trust]'"
            ) from error
        private = self._private()
        keyring = Keyring(Path(self.keys), private, clock)
        sealing = Sealing(keyring, Modes(self.verify), seam.counting, service)
        return dataclasses.replace(seam, seals=sealing, signs=bool(private))

    def _private(self) -> Mapping[str, bytes]:
        from posthouse.trust.signatures.keys import private_in, read_private  # what reads files, for whoever has some

        if self.private is not None:
            return read_private(Path(self.private))
        if file := os.environ.get(PRIVATE_FILE):
            return read_private(Path(file))
        return private_in(os.environ.get(PRIVATE, ""), PRIVATE)


def signing_here() -> Signing | None:
    """What the environment says about signatures: POSTHOUSE_SIGNING names the public file, POSTHOUSE_SIGNING_VERIFY the modes as in
    `shop.*=require,*=warn`. None where it says nothing."""
    keys = os.environ.get(KEYS)
    if not keys:
        return None
    said = os.environ.get(VERIFY)
    if not said:
        return Signing(keys=keys)
    verify = {}
    for part in said.split(","):
        pattern, equals, text = part.strip().partition("=")
        if not equals:
            raise ConfigurationError(f"{VERIFY}: {part.strip()!r} says nothing: write PATTERN=require")
        verify[pattern.strip()] = text.strip()
    return Signing(keys=keys, verify=verify)
