"""Pacts: what consumers expect of producers, checked against what producers say, within a repository and between them."""

from posthouse.contracts.pacts.breach import Breach
from posthouse.contracts.pacts.expectation import Expectation, expectations_of
from posthouse.contracts.pacts.file import pacts_of, read_pact
from posthouse.contracts.pacts.verifying import verify_decoder, verify_expectation, verify_sample

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
