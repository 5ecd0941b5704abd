"""The normal form of JSON Schemas: other spellings of the same meaning come out the same."""

from posthouse.contracts.normal.form import fields_of, normalised
from posthouse.contracts.normal.keywords import DIALECT, Node
from posthouse.contracts.normal.values import canonical, sha256

__all__ = ["DIALECT", "Node", "canonical", "fields_of", "normalised", "sha256"]
