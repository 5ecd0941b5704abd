"""Receipt: the fact that says that somebody was erased. Whoever keeps something about him deletes it when he hears it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from posthouse.contracts import Payload

SUBJECT = "subject.erased.v1"


class ErasureReceipt(Payload, frozen=True):
    """The key of `subject` in this tenant was destroyed at `at`, in seconds since 1970, as erasure `number` of its key store. No more
    is said of him: who asked for it, and why, is in the operators' log of the service."""

    subject: str
    at: float
    number: int


class Declares(Protocol):
    """A service, as far as it declares its events."""

    def event(
        self, subject: str, *, key: str, retention: Literal["cold"]
    ) -> Callable[[type[ErasureReceipt]], type[ErasureReceipt]]:
        """Declare a fact that the service owns."""
        ...


def subject_erased(service: Declares) -> type[ErasureReceipt]:
    """Declare the receipts of a service, `subject.erased.v1`, and return their class, for handlers: `@model.on(GuestErased)`."""

    class SubjectErased(ErasureReceipt, frozen=True):
        __doc__ = ErasureReceipt.__doc__

    return service.event(SUBJECT, key="subject", retention="cold")(SubjectErased)
