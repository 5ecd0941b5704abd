"""Posthouse: the event backbone for Python services.

A committed event is never lost, and a rolled-back one is never seen. Each is delivered at least once; its effect in your
database is applied once per consumer and, per key, in commit order. What could not be applied is held in order, visible,
and one command away from being applied.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posthouse.app import App, app_of
    from posthouse.broker import Broker
    from posthouse.contracts import Payload
    from posthouse.errors import PosthouseError, Reject, RetryLater, RetryNow, RuleBroken
    from posthouse.events import Actor, Event, Subject
    from posthouse.receiving import Policy
    from posthouse.seam import Rules, Seam
    from posthouse.sending import RelaySettings, SyncTx, Tx
    from posthouse.service import Service
    from posthouse.settings import Settings
    from posthouse.store import Store
else:
    # The same at run time, when a name is first asked for: `posthouse --help` would import the whole house otherwise.
    _ROOMS = (
        "errors",
        "events",
        "contracts",
        "broker",
        "store",
        "seam",
        "sending",
        "receiving",
        "app",
    )  # in order of imports; whoever asks for Service gets App with it, which runs one that has no other host

    def __getattr__(name):
        for room in _ROOMS if name in __all__ else ():
            found = getattr(import_module(f"posthouse.{room}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
        raise AttributeError(f"module 'posthouse' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "Actor",
    "App",
    "Broker",
    "Event",
    "Payload",
    "Policy",
    "PosthouseError",
    "Reject",
    "RelaySettings",
    "RetryLater",
    "RetryNow",
    "RuleBroken",
    "Rules",
    "Seam",
    "Service",
    "Settings",
    "Store",
    "Subject",
    "SyncTx",
    "Tx",
    "app_of",
]
