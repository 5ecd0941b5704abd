"""iam-service at work: accounts, sessions, desktops, second factors."""

from melmastoon.facts.iam import iam
from melmastoon.iam import commands, erasure, tables

__all__ = ["commands", "erasure", "iam", "tables"]
