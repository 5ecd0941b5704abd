"""payment-gateway-service: money that was moved, or was not.

Read `intents` for what is to be taken, `capturing` for how it is taken, `refunds` for what is to be given back, `refunding` for
how it is given, `settling` for how a vendor that does not answer is dealt with, `cash` and `finance` for what people do."""

from melmastoon.facts.payment import payment
from melmastoon.payment import capturing, cash, finance, intents, joining, refunding, refunds, settling, tables

__all__ = [
    "capturing",
    "cash",
    "finance",
    "intents",
    "joining",
    "payment",
    "refunding",
    "refunds",
    "settling",
    "tables",
]
