"""PromQL: questions about the figures of the table. A name, a label or a word that is not there cannot be asked for.

Several processes may say one figure of a store, each by its own look: these are one figure, of which the greatest is taken before
anything is added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.options import Options
from posthouse.watch.table import Metric, metric

Words = str | Sequence[str]
"""What a label must be: one word, one of several, or a pattern with a variable of Grafana's, as `$service`."""

A_DAY = 86_400.0


class Promql(Options):
    """`keep`: labels that the scrapes have beside ours, as `env`, and by which figures are told apart. `prefix`: ask for the names
    that a platform gave to our figures, where they can say it, as `melmastoon_outbox_unpublished_count`. `time_scale`: every
    stretch of time is so many times as long."""

    keep: tuple[str, ...] = ()
    prefix: str = ""
    time_scale: float = 1.0

    def series(self, name: str, **only: Words) -> str:
        """`posthouse_held{state="dead"}`."""
        of = self._known(name, (), only)
        also = self._also(of, only)
        return f"{self._name(of, only)}{_selected({also[label]: self._said(of, label, words) for label, words in only.items()})}"

    def worst(self, name: str, *by: str, **only: Words) -> str:
        """The greatest that any process says."""
        return self._over("max", by, self._known(name, by, only), self.series(name, **only), only)

    def farthest(self, name: str, *by: str, **only: Words) -> str:
        """The greatest distance from 0 that any process says."""
        return self._over("max", by, self._known(name, by, only), f"abs({self.series(name, **only)})", only)

    def strayed(self, name: str, *by: str, window: float, **only: Words) -> str:
        """Where any process said within so many seconds that it is not 0, and what: a look that sees less, a process that begins
        anew and one that misses a scrape change nothing."""
        of, inner = self._known(name, by, only), f"{self.series(name, **only)}[{self.duration(window)}]"
        above = self._over("max", by, of, f"max_over_time({inner})", only)
        return f"{above} > 0 or {self._over('min', by, of, f'min_over_time({inner})', only)} < 0"

    def least(self, name: str, *by: str, **only: Words) -> str:
        """The smallest that any process says: 0 as soon as one of them knows better."""
        return self._over("min", by, self._known(name, by, only), self.series(name, **only), only)

    def total(self, name: str, *by: str, **only: Words) -> str:
        """All of them together, each counted once."""
        return self._summed(name, by, only, self.series(name, **only))

    def rate(self, name: str, *by: str, window: float | str, **only: Words) -> str:
        """So many a second."""
        return self._summed(name, by, only, f"rate({self.series(name, **only)}[{self._stretch(window)}])")

    def grown(self, name: str, *by: str, window: float, **only: Words) -> str:
        """By how much it grew in so many seconds. A counter that was not there a day before counts from 0: `increase` alone
        is blind to the first one, which may be the only one. What a new process reads from a store is not new."""
        of, span, known = self.series(name, **only), self.duration(window), self._known(name, by, only)
        named = [theirs for label, theirs in self._also(known, only).items() if label in known.labels]
        unless = f"unless on ({', '.join(self._labels(named))})" if known.source == "store" else "unless"
        new = f"{of} {unless} last_over_time({of}[{self.duration(A_DAY)}] offset {span})"
        return self._summed(name, by, only, f"increase({of}[{span}]) > 0 or ({new})")

    def increase(self, name: str, *by: str, window: float, **only: Words) -> str:
        """By how much a counter grew in so many seconds, as far as it was there."""
        return self._summed(name, by, only, f"increase({self.series(name, **only)}[{self.duration(window)}])")

    def climbed(self, name: str, *by: str, window: float, **only: Words) -> str:
        """By how much a figure rose in so many seconds, as the process says that saw the most."""
        inner = f"delta({self.series(name, **only)}[{self.duration(window)}])"
        return self._over("max", by, self._known(name, by, only), inner, only)

    def quantile(self, share: float, name: str, *by: str, window: float | str, **only: Words) -> str:
        """So long took this share of them at most, by the buckets of a histogram."""
        of = self._known(name, by, only)
        buckets = self.series(name, **only).replace(of.full, f"{of.full}_bucket", 1)
        inner = f"sum by ({', '.join((*self._labels(by), 'le'))}) (rate({buckets}[{self._stretch(window)}]))"
        return f"histogram_quantile({share:g}, {inner})"

    def label(self, name: str, label: str) -> str:
        """What a label of ours is called in the answers about this figure."""
        return self._also(self._known(name, (label,), {}), {})[label]

    def duration(self, seconds: float) -> str:
        """As Prometheus writes it: `5m`."""
        return duration_of(seconds * self.time_scale)

    def _summed(self, name: str, by: Sequence[str], only: Mapping[str, Words], inner: str) -> str:
        of = self._known(name, by, only)
        if of.source == "process":
            return self._over("sum", by, of, inner, only)
        named = self._also(of, only)
        whole = [label for label in of.labels if label in named]
        once = self._over("max", whole, of, inner, only)
        return once if set(by) == set(whole) else self._over("sum", by, of, once, only)

    def _over(self, how: str, by: Sequence[str], of: Metric, inner: str, only: Mapping[str, Words]) -> str:
        named = self._also(of, only)
        return f"{how} by ({', '.join(self._labels([named[label] for label in by]))}) ({inner})"

    def _labels(self, by: Sequence[str]) -> list[str]:
        return [*by, *(label for label in self.keep if label not in by)]

    def _stretch(self, window: float | str) -> str:
        return window if isinstance(window, str) else self.duration(window)

    def _name(self, of: Metric, only: Mapping[str, Words]) -> str:
        return f"{self.prefix}_{of.also.name}" if self._renamed(of, only) and of.also else of.full

    def _also(self, of: Metric, only: Mapping[str, Words]) -> Mapping[str, str]:
        """Our labels, and what they are called there."""
        if self._renamed(of, only) and of.also:
            return of.also.labels
        return {label: label for label in of.labels}

    def _said(self, of: Metric, label: str, words: Words) -> Words:
        there = of.also.words.get(label, {}) if self._renamed(of, {label: words}) and of.also else {}
        return there.get(words, words) if isinstance(words, str) else [there.get(word, word) for word in words]

    def _renamed(self, of: Metric, only: Mapping[str, Words]) -> bool:
        return bool(self.prefix) and of.also is not None and set(only) <= set(of.also.labels)

    @staticmethod
    def _known(name: str, by: Sequence[str], only: Mapping[str, Words]) -> Metric:
        of = metric(name)
        problems = [
            f"{of.full} has no label {label!r}.{did_you_mean(label, of.labels)}"
            for label in (*by, *only)
            if label not in of.labels
        ]
        for label, words in only.items():
            for word in [words] if isinstance(words, str) else words:
                if label in of.words and "$" not in word and word not in of.words[label]:
                    problems.append(f"{label} of {of.full} is never {word!r}.{did_you_mean(word, of.words[label])}")
        if problems:
            raise ConfigurationError(*problems)
        return of


def duration_of(seconds: float) -> str:
    """As Prometheus writes it: `5m`, `90s`, `1500ms`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds // length:.0f}{unit}"
    return f"{max(1, round(seconds * 1000))}ms"


def _selected(only: Mapping[str, Words]) -> str:
    found = [
        f'{label}="{words}"'
        if isinstance(words, str) and "$" not in words
        else f'{label}=~"{words if isinstance(words, str) else "|".join(words)}"'
        for label, words in only.items()
    ]
    return f"{{{','.join(found)}}}" if found else ""
