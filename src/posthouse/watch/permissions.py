"""Permissions: what the account may do by which a broker is reached, beside what the services declare and the rights allow."""

from __future__ import annotations

from collections.abc import Iterable

from posthouse.accounts import account_of
from posthouse.app import App
from posthouse.checks import Check, judged
from posthouse.errors import BrokerError
from posthouse.survey import Permitting, Wish
from posthouse.trust.rights.account import merged

NAME = "account"
EXPORT = (
    "`posthouse export rights TARGET… --for BROKER` writes what each service named needs, and no more: name all services of the broker, "
    "since the file takes the place of the one before, and apply it whole"
)
NOBODY = "not compared: nobody here may tell what this account may do"
ANY = "any other topic"
BY_WHOM = "docs/rights.md says by whom the broker can be asked"
WITHOUT_ACCOUNTS = ("memory", "embedded")
ELSEWHERE = {
    "pubsub": f"`gcloud pubsub topics get-iam-policy` says who may publish to a topic; {EXPORT}",
    "sqs": f"`aws iam simulate-principal-policy` says what a role may do, to whoever may ask; {EXPORT}",
    "postgres": "privileges of the database are not by topic: whoever may write to its schema may publish to all of them",
}
"""Where nobody here can ask: who can."""


async def permission_checks(app: App) -> list[Check]:
    """Nothing where no rights are kept. The services of an App share an account, so it needs what all of them need."""
    if app.opened.rights is None:
        return []
    if not isinstance(app.broker, Permitting):
        return [_unasked(app.broker.sheet.name)]
    needed, beyond = _wishes(app)
    try:
        answers = await app.broker.permitted([*needed, *beyond])
    except BrokerError as error:
        return [Check(name=NAME, found=f"not compared: {error}", judgement="warn", fix=EXPORT)]
    if all(answer is None for answer in answers):
        return [_unasked(app.broker.sheet.name)]
    told = dict(zip([*needed, *beyond], answers, strict=True))
    return compared(needed, beyond, told)


def _unasked(broker: str) -> Check:
    """Not called right: nobody has looked."""
    if broker in WITHOUT_ACCOUNTS:
        return Check(name=NAME, found=f"{broker} has no accounts: whoever runs here may do everything")
    return Check(
        name=NAME, found=f"{NOBODY}: {broker} does not tell us", judgement="warn", fix=ELSEWHERE.get(broker, BY_WHOM)
    )


def compared(needed: Iterable[Wish], beyond: Iterable[Wish], told: dict[Wish, bool | None]) -> list[Check]:
    """What is lacking, what is too much, and of what nobody could tell. Pure."""
    lacking = [wish for wish in needed if told[wish] is False]
    much = [wish for wish in beyond if told[wish]]
    unknown = [wish for wish, answer in told.items() if answer is None]
    seen = f"of {len(told)} things that were asked"
    checks = [
        judged(
            f"{NAME}, too narrow",
            f"it may not {_words(lacking)}" if lacking else f"nothing is lacking, {seen}",
            wrong=bool(lacking),
            fix=EXPORT,
        ),
        judged(
            f"{NAME}, too wide",
            f"it may {_words(much)} too" if much else f"nothing is too much, {seen}",
            wrong=bool(much),
            fix=f"whoever takes this service over may do so too; {EXPORT}",
        ),
    ]
    if unknown:
        checks.append(Check(name=f"{NAME}, not told", found=f"whether it may {_words(unknown)}"))
    return checks


def _wishes(app: App) -> tuple[list[Wish], list[Wish]]:
    """What must be allowed, and what must not. Who owns a topic may well read it."""
    [account] = merged(account_of(service, "one") for service in app.services)
    needed = [Wish("publish", topic) for topic in account.published] + [Wish("read", topic) for topic in account.read]
    foreign = sorted({*account.read} - {*account.published})
    return needed, [*(Wish("publish", topic) for topic in foreign), Wish("publish"), Wish("read")]


def _words(wishes: Iterable[Wish]) -> str:
    said: dict[str, list[str]] = {}
    for wish in wishes:
        said.setdefault(wish.verb, []).append(wish.topic or ANY)
    return "; ".join(
        f"{'publish to' if verb == 'publish' else verb} {', '.join(topics)}" for verb, topics in said.items()
    )
