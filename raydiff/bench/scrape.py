"""Reads raydiff's metrics from Ray's exporter, as Prometheus would."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from raydiff.errors import ClusterError

PREFIX = "ray_raydiff_"


class Scrape:
    """The values of one scrape."""

    def __init__(self, text: str) -> None:
        self._samples = [
            sample
            for family in text_string_to_metric_families(text)
            if family.name.startswith(PREFIX)
            for sample in family.samples
        ]

    def total(self, name: str, **labels: str) -> float:
        """Sum of a series over all processes, of those with the given labels."""
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


def scrape(url: str, timeout_s: float = 10.0) -> Scrape:
    """Scrape once.

    Raises:
        ClusterError: nothing answers at `url`.
    """
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as response:
            return Scrape(response.read().decode())
    except OSError as error:
        raise ClusterError(f"Metrics: nothing answers at {url}: {error}.") from error


def scrape_until(url: str, ready: Callable[[Scrape], bool], timeout_s: float = 45.0) -> Scrape:
    """Scrape until `ready` says so or time is up: Ray exports what happened some seconds later."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = scrape(url)
        if ready(found) or time.monotonic() >= deadline:
            return found
        time.sleep(1.0)
