"""Reading raydiff's metrics from what Ray exports."""

from __future__ import annotations

from raydiff.bench.scrape import Scrape

EXPORTED = """\
# TYPE ray_raydiff_forward_rows_total counter
ray_raydiff_forward_rows_total{kind="denoise",WorkerId="a"} 10
ray_raydiff_forward_rows_total{kind="denoise",WorkerId="b"} 6
ray_raydiff_forward_rows_total{kind="encode",WorkerId="a"} 1000
# TYPE other_total counter
other_total 3
"""


def test_a_total_sums_processes_and_ignores_what_is_not_raydiffs() -> None:
    found = Scrape(EXPORTED)
    assert found.total("ray_raydiff_forward_rows_total", kind="denoise") == 16
    assert found.total("ray_raydiff_forward_rows_total") == 1016
    assert found.total("other_total") == 0
