"""Reference: docs/metrics.md, written from the table. `python -m tests.docs.metric_page > docs/metrics.md` writes it anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from posthouse.watch.table import TABLE, Metric, Source

HEAD = """# Figures

What services that run can tell, under names that stay. A test holds this page to the code
(`python -m tests.docs.metric_page > docs/metrics.md` writes it).

## Scrape them

```
posthouse run shop.app:app --http 127.0.0.1:9464      # /metrics: this process, and its stores and brokers
posthouse watch shop.app:app --http 127.0.0.1:9465    # /metrics: stores and brokers alone
```

Figures of the **process** are counted in memory while it works, and begin at 0 with it: take `rate` and `sum` of them. Figures of
the **store** are read when somebody asks, by the database's clock, and are true while every worker is dead. Several processes may say
the same one: take `max` of them, never `sum` (of `consumer_unknown` take `min`: one that knows is enough). What nobody knows is absent, and not 0.

In an application that has a registry of prometheus-client already, register them there:

<!-- docs/examples/metrics.py -->
```python
registry.register(Figures(lambda: samples([app])))
```

## Tell tenants apart by their class

No label is a tenant, a key, an id, the type of an event that came, or the text of an error: each would be a series of its own, for ever.
Labels are words that your code declares, or that stand below; whatever else comes is counted under `(others)`, and so is what comes after
1,000 series of one name. Tenants are told apart by a word that a function of yours has for each:

<!-- docs/examples/metrics.py -->
```python
SIZES = {"acme": "large", "corner-shop": "small"}


def size(tenant: str) -> str:
    return SIZES.get(tenant, "small")


app = App(orders, store="sqlite://", broker="memory://", tenant_class=size)
```

`posthouse_events_published_total` has this label, and no other figure.
It is asked in the relay, for the tenants of each batch: a lookup, and nothing that waits. At most 16 words; what it raises, what is no
text of 1 to 64 characters, and the tenant itself count under `(others)`, and the first of them is in the log. No event waits for that
or is lost by it.

## OpenTelemetry

`pip install 'posthouse[opentelemetry]'`, and where your SDK is set up:

<!-- docs/examples/metrics.py -->
```python
exported = export(app)
```

Each figure is an instrument of the meter `posthouse`, named and measured so that a collector which writes for Prometheus arrives at
the names below (`posthouse.events_consumed` becomes `posthouse_events_consumed_total`). `export(app, stores=True)`, called on the
event loop that the App runs on, adds the figures of its stores. Whoever collects does so in a thread of the SDK: one that never answers slows
nothing. `exported.close()` ends it.

## Names of your own platform

`posthouse run … --http … --prefix melmastoon`, or `POSTHOUSE_METRICS_PREFIX=melmastoon`, exports those that have another name below under that
as well, beginning with `melmastoon_`. Labels that such a name does not have are summed.
"""

TITLES: dict[Source, str] = {"store": "Of stores and brokers", "process": "Of a process"}


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_section(source) for source in TITLES) + _others()


def _section(source: Source) -> str:
    rows = [_row(one) for one in TABLE.values() if one.source == source]
    return f"\n## {TITLES[source]}\n\n| name | kind | labels | counts | meaning |\n|---|---|---|---|---|\n" + "".join(
        rows
    )


def _row(one: Metric) -> str:
    labels = ", ".join(_label(one, label) for label in one.labels)
    return f"| `{one.full}` | {one.kind} | {labels} | {one.unit} | {one.meaning} |\n"


def _label(one: Metric, label: str) -> str:
    words = _words(one.words.get(label, ()))
    return f"{label} ({words})" if words else label


def _words(words: Iterable[str]) -> str:
    return " ".join(f"`{word}`" for word in words)


def _others() -> str:
    """The names that a platform may have beside ours."""
    head = "\n## Names with a prefix\n\n| name | is | with the labels | counted there |\n|---|---|---|---|\n"
    rows = [
        f"| `<prefix>_{also.name}` | `{one.full}` | {', '.join(also.labels.values())} | "
        f"{'; '.join(f'{label}: {_renamed(words)}' for label, words in also.words.items()) or 'all'} |\n"
        for one in TABLE.values()
        if (also := one.also) is not None
    ]
    return head + "".join(rows)


def _renamed(words: Mapping[str, str]) -> str:
    return ", ".join(f"`{ours}`" if ours == theirs else f"`{ours}` as `{theirs}`" for ours, theirs in words.items())


if __name__ == "__main__":
    print(page(), end="")
