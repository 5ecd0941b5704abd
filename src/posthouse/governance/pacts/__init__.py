"""Pacts: what consumers expect of producers, checked against what producers say, within a repository and between them."""

from posthouse.governance.pacts.breach import Breach
from posthouse.governance.pacts.expectation import Expectation, expectations_of
from posthouse.governance.pacts.file import pacts_of, read_pact
from posthouse.governance.pacts.verifying import verify_decoder, verify_expectation, verify_sample

__all__ = [
    "Breach",
    "Expectation",
    "expectations_of",
    "pacts_of",
    "read_pact",
    "verify_decoder",
    "verify_expectation",
    "verify_sample",
]
