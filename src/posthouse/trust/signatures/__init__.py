"""Signatures: facts that say who said them, checked before anybody acts on them."""

from posthouse.trust.signatures.signing import Signing, signing_here

__all__ = ["Signing", "signing_here"]
