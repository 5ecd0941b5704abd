"""Is a verb in the past tense, and what would it be? English spelling, good enough to catch and to suggest."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PARTICLES = _words("away back down in off on out over through up")
"""Words that may follow the verb: `checked_in`, `timed_out`."""

_IRREGULAR = dict(
    pair.split(":")
    for pair in _words(
        "arise:arisen be:been become:became begin:begun bid:bid bind:bound bite:bitten blow:blown break:broken "
        "bring:brought build:built burst:burst buy:bought cast:cast catch:caught choose:chosen come:came cost:cost "
        "cut:cut deal:dealt dig:dug do:done draw:drawn drink:drunk drive:driven eat:eaten fall:fallen feed:fed "
        "feel:felt fight:fought find:found flee:fled fly:flown forbid:forbidden forget:forgotten forgive:forgiven "
        "freeze:frozen get:got give:given go:gone grind:ground grow:grown hang:hung have:had hear:heard hide:hidden "
        "hit:hit hold:held hurt:hurt input:input keep:kept know:known lay:laid lead:led learn:learnt leave:left "
        "lend:lent let:let light:lit lose:lost make:made mean:meant meet:met mislead:misled mistake:mistaken "
        "offset:offset outbid:outbid overdraw:overdrawn override:overridden oversell:oversold pay:paid put:put "
        "quit:quit read:read rebind:rebound rebuild:rebuilt redo:redone repay:repaid resell:resold resend:resent "
        "reset:reset rewind:rewound rewrite:rewritten ride:ridden ring:rung rise:risen run:run say:said see:seen "
        "seek:sought sell:sold send:sent set:set shake:shaken shed:shed shine:shone shoot:shot show:shown "
        "shrink:shrunk shut:shut sing:sung sink:sunk sit:sat sleep:slept speak:spoken spend:spent spin:spun "
        "split:split spread:spread spring:sprung stand:stood steal:stolen stick:stuck strike:struck swear:sworn "
        "sweep:swept swim:swum take:taken teach:taught tear:torn tell:told think:thought throw:thrown "
        "unbind:unbound undergo:undergone understand:understood undo:undone unfreeze:unfrozen unwind:unwound "
        "uphold:upheld upset:upset wake:woken wear:worn weave:woven win:won wind:wound withdraw:withdrawn "
        "withhold:withheld write:written"
    )
)
_PAST = frozenset(_IRREGULAR.values()) | _words(
    "arose ate began bit blew broke chose did drank drove fell flew forgave forgot froze gave grew hid knew overdrew "
    "oversaw ran rang rode rose sang sank saw shook showed spoke stole swam swore threw took tore undid was went were "
    "withdrew woke wore wove wrote"
)
_PAST_IN_EED = _words("agreed disagreed decreed freed guaranteed refereed")
_ED_BUT_PRESENT = _words("bed embed hundred imbed moped red sacred sled wed")
_DOUBLED = _words("cancel commit compel control defer equip label model omit permit prefer refer submit transfer")
_VOWELS = frozenset("aeiou")


def is_past(verb: str) -> bool:
    """True when the last word of a snake_case verb, particles aside, is a past form."""
    word = _split(verb)[1]
    if word in _PAST:
        return True
    if word.endswith("eed"):
        return word in _PAST_IN_EED
    return len(word) > 3 and word.endswith("ed") and word not in _ED_BUT_PRESENT


def past_of(verb: str) -> str | None:
    """The likely past tense of a snake_case verb (`place` → `placed`), or None when there is no good guess."""
    before, word, particles = _split(verb)
    guess = _past_word(word)
    return None if guess is None else "_".join((*before, guess, *particles))


def _split(verb: str) -> tuple[list[str], str, list[str]]:
    words = verb.split("_")
    end = len(words)
    while end > 1 and words[end - 1] in PARTICLES:
        end -= 1
    return words[: end - 1], words[end - 1], words[end:]


def _past_word(word: str) -> str | None:
    if word.endswith(("tion", "sion", "ment", "ness")) or len(word) < 2:
        return None
    if word.endswith("ing") and len(word) > 5:
        stem = word[:-3]
        single = stem[:-1] if stem[-1] == stem[-2] else stem
        return _IRREGULAR.get(stem) or _IRREGULAR.get(stem + "e") or _IRREGULAR.get(single) or stem + "ed"
    if word.endswith("s") and not word.endswith("ss") and len(word) > 3:
        return _past_word(word[:-1])
    return _IRREGULAR.get(word) or _regular(word)


def _regular(word: str) -> str:
    if word.endswith("e"):
        return word + "d"
    if word.endswith("y") and word[-2] not in _VOWELS:
        return word[:-1] + "ied"
    short = len(word) <= 4 and sum(letter in _VOWELS for letter in word) == 1
    closed = word[-1] not in "wxyaeiou" and word[-2] in _VOWELS
    return word + word[-1] + "ed" if word in _DOUBLED or (short and closed) else word + "ed"
