"""Signatures, as they are examined: whether this process can sign what its services say, today and from the next key on."""

from __future__ import annotations

from pathlib import Path

from posthouse.app import App, signing_of
from posthouse.checks import Check
from posthouse.errors import ConfigurationError
from posthouse.trust.signatures.halves import lacking
from posthouse.trust.signatures.keys import read_keys

NAME = "signatures"


def signature_checks(app: App) -> list[Check]:
    """Nothing where nothing is signed."""
    if (signing := signing_of(app)) is None:
        return []
    halves = signing.halves()
    try:
        keys, here = read_keys(Path(signing.keys)), halves.read()
    except ConfigurationError as error:
        return [Check(name=NAME, found=str(error), judgement="fail", fix="see `posthouse keys check`")]
    checks = [
        Check(
            name=NAME,
            found=f"everybody on this machine may read the private keys in {file}",
            judgement="fail",
            fix=f"chmod 600 {file}; whoever was here may have them: `posthouse keys new`, then `posthouse keys revoke`",
        )
        for file in halves.open_to_others()
    ]
    for service in app.services:
        for lack in lacking(keys, here, service.source, app.clock.now()):
            fix = "put the private half with the others: a running process takes it within a second or so"
            checks.append(Check(name=NAME, found=lack.words, judgement="fail" if lack.now else "warn", fix=fix))
    return checks or [Check(name=NAME, found=f"{len(here)} of {len(keys)} keys have their private half here")]
