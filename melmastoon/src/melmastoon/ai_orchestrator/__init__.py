"""ai-orchestrator-service at work: anomalies, texts, inferences, and what people decided about them."""

from melmastoon.ai_orchestrator import commands, handlers, tables
from melmastoon.facts.ai_orchestrator import ai_orchestrator

__all__ = ["ai_orchestrator", "commands", "handlers", "tables"]
