"""The seam: the five crossings of an event, each a short list of named steps.

A fact on its way out, a frame on its way in, a call of a handler, a publish and a receive of the broker, a transaction of the
store. Whatever is to be done, measured or refused at one of them has its place here, and nowhere else.
"""

from posthouse.seam.context import EventContext, context_of
from posthouse.seam.counting import Counting, TenantClass
from posthouse.seam.current import NOTHING, Current, context_here, current, during, handling, tenant_here
from posthouse.seam.failures import Failure, Failures, OnFailure
from posthouse.seam.outward import EnvelopeBuilder
from posthouse.seam.rules import Rules
from posthouse.seam.schema_guard import SchemaGuard
from posthouse.seam.seam import OutwardStep, Seam
from posthouse.seam.timing import Crossing, Figure, Timing
from posthouse.seam.version_usage import VersionUsage

__all__ = [
    "NOTHING",
    "Counting",
    "Crossing",
    "Current",
    "EnvelopeBuilder",
    "EventContext",
    "Failure",
    "Failures",
    "Figure",
    "OnFailure",
    "OutwardStep",
    "Rules",
    "SchemaGuard",
    "Seam",
    "TenantClass",
    "Timing",
    "VersionUsage",
    "context_here",
    "context_of",
    "current",
    "during",
    "handling",
    "tenant_here",
]
