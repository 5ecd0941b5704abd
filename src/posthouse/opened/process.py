"""Process: what this process is called and what it was built from, among those of all machines."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from posthouse.local.checkout import checked_out
from posthouse.service import Service
from posthouse.store import Worker


def process_name() -> str:
    """This process, among those of all machines."""
    return f"{socket.gethostname()}-{os.getpid()}"


def worker_of(services: Sequence[Service]) -> Worker:
    """This process, as one that runs them; it stands aside until it has looked who else runs their sagas."""
    sagas = [of for service in services for of in service.declared.saga_types.values()]
    return Worker(
        id="",
        services=[service.name for service in services],
        name=process_name(),
        host=socket.gethostname(),
        pid=os.getpid(),
        version=_version(),
        commit=commit_of(services[0]) if services else os.environ.get("POSTHOUSE_COMMIT", ""),
        consumers=sorted(name for service in services for name in service.declared.consumers),
        releases={of.consumer: of.release for of in sagas},
        aside={of.consumer: "waits" for of in sagas},
    )


def commit_of(service: Service) -> str:
    """The commit that a service was made from: as whoever built it says, or what is checked out where its code lies."""
    if (said := os.environ.get("POSTHOUSE_COMMIT", "")) or not (known := list(service.declared.catalogue)):
        return said
    module = sys.modules.get(known[0].payload.cls.__module__)
    place = getattr(module, "__file__", None)
    return "" if place is None else checked_out(Path(place).parent)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and only who runs needs it

    try:
        return version("posthouse")
    except PackageNotFoundError:  # frozen into an executable without it
        return "unknown"
