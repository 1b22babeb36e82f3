"""Reads what an exporter shows, as Prometheus would."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterable

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def scrape(url: str) -> list[Sample]:
    """All samples at a metrics URL."""
    with urllib.request.urlopen(url, timeout=30) as response:
        text = response.read().decode()
    return [s for family in text_string_to_metric_families(text) for s in family.samples]


def value(samples: Iterable[Sample], name: str, **labels: str) -> float:
    """The sum of the samples of a name whose labels include `labels`."""
    return sum(
        s.value for s in samples if s.name == name and labels.items() <= dict(s.labels).items()
    )


def scrape_until(url: str, enough: Callable[[list[Sample]], bool]) -> list[Sample]:
    """Scrape until the samples satisfy `enough`: Ray's exporter lags by some seconds."""
    for _ in range(120):
        samples = scrape(url)
        if enough(samples):
            return samples
        time.sleep(0.5)
    raise AssertionError(sorted({s.name for s in samples if "raydiff" in s.name}))
