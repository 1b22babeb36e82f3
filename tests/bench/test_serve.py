"""`raydiff bench serve`: figures from answers and scrapes."""

from __future__ import annotations

import pytest

from raydiff.bench.scrape import Scrape
from raydiff.bench.serve import latency, rows_per_forward

EXPORTED = """\
# TYPE ray_raydiff_forward_rows_total counter
ray_raydiff_forward_rows_total{{kind="denoise",WorkerId="a"}} {rows}
ray_raydiff_forward_rows_total{{kind="denoise",WorkerId="b"}} 6
ray_raydiff_forward_rows_total{{kind="encode",WorkerId="a"}} 1000
# TYPE ray_raydiff_forwards_total counter
ray_raydiff_forwards_total{{kind="denoise",WorkerId="a"}} {forwards}
ray_raydiff_forwards_total{{kind="denoise",WorkerId="b"}} 2
ray_raydiff_forwards_total{{kind="encode",WorkerId="a"}} 1
# TYPE other_total counter
other_total 3
"""


def _scrape(rows: int, forwards: int) -> Scrape:
    return Scrape(EXPORTED.format(rows=rows, forwards=forwards))


def test_rows_per_forward_counts_denoising_between_the_scrapes() -> None:
    assert rows_per_forward(_scrape(10, 5), _scrape(130, 15)) == 12
    assert rows_per_forward(_scrape(10, 5), _scrape(10, 5)) is None


def test_a_total_sums_processes_and_ignores_what_is_not_raydiffs() -> None:
    found = _scrape(10, 5)
    assert found.total("ray_raydiff_forward_rows_total", kind="denoise") == 16
    assert found.total("ray_raydiff_forward_rows_total") == 1016
    assert found.total("other_total") == 0


def test_latency_percentiles_are_of_the_requests() -> None:
    found = latency([float(i) for i in range(1, 101)])
    assert found["p50_s"] == pytest.approx(50.5, abs=1)
    assert found["p99_s"] == pytest.approx(99, abs=1)
    assert found["max_s"] == 100
    assert latency([2.0])["p50_s"] == 2.0
    assert latency([]) == {}
