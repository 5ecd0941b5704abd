"""Secret fields: what is marked personal is encrypted under the key of the person it is about, and erased with that key."""

from posthouse.contracts.boxes import ERASED, WITHHELD, is_withheld
from posthouse.trust.secrets.declaring import Secrets
from posthouse.trust.secrets.receipt import ErasureReceipt, subject_erased

__all__ = ["ERASED", "WITHHELD", "ErasureReceipt", "Secrets", "is_withheld", "subject_erased"]
