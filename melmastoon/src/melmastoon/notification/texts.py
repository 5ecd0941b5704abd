"""Texts: what a guest reads, by kind and language."""

from __future__ import annotations

from collections.abc import Mapping

from melmastoon.facts.notification import MessageKind

FALLBACK = "en"

TEXTS: Mapping[MessageKind, Mapping[str, str]] = {
    "confirmation": {
        "en": "Dear {name}, your booking {booking} is confirmed. {detail}",
        "de": "Guten Tag {name}, Ihre Buchung {booking} ist bestätigt. {detail}",
        "fa": "{name} گرامی، رزرو {booking} شما تأیید شد. {detail}",
        "ps": "ښاغلی/مېرمن {name}، ستاسو بکنګ {booking} تایید شو. {detail}",
    },
    "cancellation": {
        "en": "Dear {name}, your booking {booking} is cancelled. {detail}",
        "de": "Guten Tag {name}, Ihre Buchung {booking} ist storniert. {detail}",
        "fa": "{name} گرامی، رزرو {booking} شما لغو شد. {detail}",
        "ps": "ښاغلی/مېرمن {name}، ستاسو بکنګ {booking} لغوه شو. {detail}",
    },
    "welcome": {
        "en": "Welcome, {name}! {detail}",
        "de": "Willkommen, {name}! {detail}",
        "fa": "خوش آمدید، {name}! {detail}",
        "ps": "ښه راغلاست، {name}! {detail}",
    },
    "receipt": {
        "en": "Dear {name}, here is the receipt for {booking}. {detail}",
        "de": "Guten Tag {name}, hier ist die Quittung für {booking}. {detail}",
        "fa": "{name} گرامی، رسید {booking} پیوست است. {detail}",
        "ps": "ښاغلی/مېرمن {name}، دا د {booking} رسید دی. {detail}",
    },
    "survey": {
        "en": "Dear {name}, how was your stay? {detail}",
        "de": "Guten Tag {name}, wie war Ihr Aufenthalt? {detail}",
        "fa": "{name} گرامی، اقامت شما چگونه بود؟ {detail}",
        "ps": "ښاغلی/مېرمن {name}، ستاسو پاتې کېدل څنګه وو؟ {detail}",
    },
    "modification": {
        "en": "Dear {name}, your booking {booking} was changed. {detail}",
        "de": "Guten Tag {name}, Ihre Buchung {booking} wurde geändert. {detail}",
        "fa": "{name} گرامی، رزرو {booking} شما تغییر کرد. {detail}",
        "ps": "ښاغلی/مېرمن {name}، ستاسو بکنګ {booking} بدل شو. {detail}",
    },
    "alert": {
        "en": "{name}, booking {booking} needs somebody: {detail}",
        "de": "{name}, um die Buchung {booking} muss sich jemand kümmern: {detail}",
        "fa": "{name}، رزرو {booking} نیاز به رسیدگی دارد: {detail}",
        "ps": "{name}، بکنګ {booking} پاملرنې ته اړتیا لري: {detail}",
    },
}


def language(locale: str) -> str:
    """The language that a guest of this locale is written to in: `fa-AF` is `fa`; English where there is no text."""
    spoken = locale.replace("_", "-").partition("-")[0].lower()
    return spoken if spoken in TEXTS["confirmation"] else FALLBACK


def text_of(kind: MessageKind, locale: str, *, name: str, booking: str, detail: str = "") -> str:
    """One message, ready to be sent. `detail` is dates and amounts, which need no language."""
    return TEXTS[kind][language(locale)].format(name=name, booking=booking, detail=detail).rstrip()
