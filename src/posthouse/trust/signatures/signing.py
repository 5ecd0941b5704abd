"""Signing: what an application says about signatures."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.options import Options
from posthouse.seam.seam import Seam
from posthouse.trust.signatures.modes import asked_in

if TYPE_CHECKING:  # it reads files, for whoever has some
    from posthouse.trust.signatures.halves import Halves

KEYS, VERIFY = "POSTHOUSE_SIGNING", "POSTHOUSE_SIGNING_VERIFY"
"""Variables of the environment: the public file, and the modes."""


class Signing(Options):
    """Sign what is published, and ask for signatures of what is read."""

    keys: str | PurePath
    """The public file, as `posthouse keys` writes it. A running process sees a change within a second or so."""
    private: str | PurePath | None = None
    """The file with the private keys of the services here, or a folder of such files; a running process sees a change of it, too.
    None: what the environment says in POSTHOUSE_SIGNING_PRIVATE_FILE or POSTHOUSE_SIGNING_PRIVATE; without any nothing is signed,
    and only verified."""
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
        keyring = Keyring(Path(self.keys), self.halves(), clock)
        sealing = Sealing(keyring, Modes(self.verify), seam.counting, service)
        return dataclasses.replace(seam, seals=sealing, signs=keyring.signs)

    def halves(self) -> Halves:
        """Where the private keys are."""
        from posthouse.trust.signatures.halves import halves_here

        return halves_here(None if self.private is None else Path(self.private))


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
