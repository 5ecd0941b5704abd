"""Google Pub/Sub: IAM policies of topics and subscriptions, as `gcloud pubsub … set-iam-policy` takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from posthouse.trust.rights.account import Account, Files

DOMAIN = "PROJECT.iam.gserviceaccount.com"
"""To be replaced by the project's own."""


def pubsub(accounts: Sequence[Account]) -> Files:
    """Each policy is whole: what is not in it is taken away. No person is in any."""
    files: dict[str, str] = {}
    for topic in sorted({topic for account in accounts for topic in (*account.published, *account.read)}):
        writers = [account for account in accounts if topic in account.published]
        viewers = [account for account in accounts if topic in account.published or topic in account.read]
        files[f"topics/{topic}.json"] = _policy({"roles/pubsub.publisher": writers, "roles/pubsub.viewer": viewers})
    for account in accounts:
        for group, topic in account.places:
            policy = _policy({"roles/pubsub.subscriber": [account], "roles/pubsub.viewer": [account]})
            files[f"subscriptions/{group}.{topic}.sub.json"] = policy
    return dict(sorted(files.items()))


def _policy(roles: dict[str, list[Account]]) -> str:
    bindings = [{"role": role, "members": _members(held)} for role, held in roles.items() if held]
    return msgspec.json.format(msgspec.json.encode({"bindings": bindings}), indent=2).decode() + "\n"


def _members(accounts: Iterable[Account]) -> list[str]:
    return sorted(f"serviceAccount:{account.name}@{DOMAIN}" for account in accounts)
