"""Access: who looks, what they may see, and what they may press."""

from posthouse.console.access.access import Access, Oidc, Proxy
from posthouse.console.access.who import Role, Who

__all__ = ["Access", "Oidc", "Proxy", "Role", "Who"]
