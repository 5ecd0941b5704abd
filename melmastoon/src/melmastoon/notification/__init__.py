"""notification-service at work: what guests are told, in their own language."""

from melmastoon.facts.notification import notification
from melmastoon.notification import handlers, tables

__all__ = ["handlers", "notification", "tables"]
