"""Read models: fed by events, rebuilt beside the live one, swapped in one transaction."""

from posthouse.processes.projection.declared import Projection, Terms
from posthouse.processes.projection.effects import KEPT
from posthouse.processes.projection.feeding import Aggregates
from posthouse.processes.projection.freshness import Freshness
from posthouse.processes.projection.keeping import Keeper
from posthouse.processes.projection.model import Model, Swap
from posthouse.processes.projection.projections import GenerationStatus, Projections, ProjectionStatus
from posthouse.processes.projection.rebuilding import Plan, Progress, Rebuilt
from posthouse.processes.projection.wiring import Wiring

__all__ = [
    "KEPT",
    "Aggregates",
    "Freshness",
    "GenerationStatus",
    "Keeper",
    "Model",
    "Plan",
    "Progress",
    "Projection",
    "ProjectionStatus",
    "Projections",
    "Rebuilt",
    "Swap",
    "Terms",
    "Wiring",
]
