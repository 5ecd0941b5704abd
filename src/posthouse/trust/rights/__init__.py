"""Rights: who may publish, read and replay which topic, and the grants that let a person replay or edit for a while."""

from posthouse.trust.rights.grants import Asked, Grants
from posthouse.trust.rights.identity import person_of, signed_in
from posthouse.trust.rights.keeping import Keeper
from posthouse.trust.rights.rights import Party, Rights, rights_here

__all__ = ["Asked", "Grants", "Keeper", "Party", "Rights", "person_of", "rights_here", "signed_in"]
