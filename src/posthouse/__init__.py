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
    from posthouse.contracts.personal import Personal
    from posthouse.errors import (
        PosthouseError,
        Reject,
        RetryLater,
        RetryNow,
        RuleBroken,
        StreamArchived,
        StreamDeleted,
        VersionConflict,
    )
    from posthouse.events import Actor, Event, Subject
    from posthouse.history.audit.settings import Audit
    from posthouse.processes import (
        Aggregate,
        Calendar,
        Conflicts,
        Model,
        Run,
        Saga,
        SagaStart,
        Swap,
        Turn,
        WorkWeek,
        deadline,
        field,
        join,
        late,
        on,
        partial_resume,
        partial_retry,
        starts,
        step,
        undo,
    )
    from posthouse.receiving import Policy
    from posthouse.seam import Failure, Rules, Seam
    from posthouse.sending import RelaySettings, SyncTx, Tx
    from posthouse.service import Service
    from posthouse.settings import Settings
    from posthouse.store import Store
    from posthouse.store.sagas import SagaFilter
    from posthouse.trust.rights import Rights
    from posthouse.trust.secrets import ErasureReceipt, Secrets, is_withheld, subject_erased
    from posthouse.trust.signatures import Signing
    from posthouse.watch.status import drained
else:
    # The same at run time, when a name is first asked for: `posthouse --help` would import the whole house otherwise.
    # Whoever asks for Service gets App with it, which runs a service that has no other host.
    _NAMES = {
        "app": "App Service Settings app_of",
        "broker": "Broker",
        "contracts": "Payload",
        "contracts.personal": "Personal",
        "errors": "PosthouseError Reject RetryLater RetryNow RuleBroken StreamArchived StreamDeleted VersionConflict",
        "events": "Actor Event Subject",
        "processes": "Aggregate Calendar Conflicts Model Run Saga SagaStart Swap Turn WorkWeek deadline field join late on partial_resume "
        "partial_retry starts step undo",
        "receiving": "Policy",
        "seam": "Failure Rules Seam",
        "sending": "RelaySettings SyncTx Tx",
        "store": "Store",
        "store.sagas": "SagaFilter",
        "trust.rights": "Rights",
        "history.audit.settings": "Audit",
        "trust.secrets": "ErasureReceipt Secrets is_withheld subject_erased",
        "trust.signatures": "Signing",
        "watch.status": "drained",
    }
    _ROOMS = {name: room for room, names in _NAMES.items() for name in names.split()}

    def __getattr__(name):
        if name not in _ROOMS:
            raise AttributeError(f"module 'posthouse' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"posthouse.{_ROOMS[name]}"), name)
        return found

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "Actor",
    "Aggregate",
    "App",
    "Audit",
    "Broker",
    "Calendar",
    "Conflicts",
    "ErasureReceipt",
    "Event",
    "Failure",
    "Model",
    "Payload",
    "Personal",
    "Policy",
    "PosthouseError",
    "Reject",
    "RelaySettings",
    "RetryLater",
    "RetryNow",
    "Rights",
    "RuleBroken",
    "Rules",
    "Run",
    "Saga",
    "SagaFilter",
    "SagaStart",
    "Seam",
    "Secrets",
    "Service",
    "Settings",
    "Signing",
    "Store",
    "StreamArchived",
    "StreamDeleted",
    "Subject",
    "Swap",
    "SyncTx",
    "Turn",
    "Tx",
    "VersionConflict",
    "WorkWeek",
    "app_of",
    "deadline",
    "drained",
    "field",
    "is_withheld",
    "join",
    "late",
    "on",
    "partial_resume",
    "partial_retry",
    "starts",
    "step",
    "subject_erased",
    "undo",
]
