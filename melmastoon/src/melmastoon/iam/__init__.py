"""iam-service at work: accounts, sessions, desktops, second factors."""

from melmastoon.facts.iam import iam
from melmastoon.iam import commands, tables

__all__ = ["commands", "iam", "tables"]
