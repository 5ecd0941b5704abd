"""Listeners: TLS of what we listen on ourselves, and a word where one of them does without."""

from __future__ import annotations

import logging
import ssl

from posthouse.errors import ConfigurationError
from posthouse.local.tls import Files, Names, proven

OPTIONS = Names("--tls-client-ca", "--tls-cert", "--tls-key")
PLAIN = (
    "%s speaks plain text beyond this host: whoever stands on the way reads and changes what is said there. --tls-cert and --tls-key"
    " encrypt it, or a proxy before it that does (docs/tls.md)"
)


def listener_context(files: Files) -> ssl.SSLContext | None:
    """What a listener shows and, where an authority is named, asks of every client; None for plain text. Raises ConfigurationError
    with everything that is wrong."""
    problems: list[str] = []
    if files.ca is not None and files.cert is None:
        problems.append(f"{OPTIONS.ca} needs {OPTIONS.cert}, the certificate that is shown to those clients")
    proven(files, problems, OPTIONS)
    if problems:
        raise ConfigurationError(*problems)
    if files.cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.ca)
    context.load_cert_chain(files.cert, files.key)
    if files.ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def warn_of_plain(log: logging.Logger, place: object) -> None:
    """One line, when something begins to listen."""
    log.warning(PLAIN, place)
