"""Quality against speed, with the front of the settings that no other beats in both."""

from __future__ import annotations

import io
from typing import Any

from raydiff.errors import UsageError


def require_plotting() -> None:
    """Check that plots can be drawn.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401 - only whether it is there
    except ModuleNotFoundError as error:
        message = "The plot needs matplotlib: pip install 'raydiff[bench]'."
        raise UsageError(message) from error


def plot(findings: dict[str, Any], title: str) -> bytes:
    """A PNG: a point a setting with the interval of its quality; the fastest within the loss is
    filled, and the reference's quality less the loss is a line."""
    from matplotlib.figure import Figure

    settings = findings["settings"]
    figure = Figure(figsize=(8, 5), layout="tight")
    axes = figure.add_subplot()
    for found in settings:
        speed, quality = _point(found)
        edges = (quality - found["quality_low"], found["quality_high"] - quality)
        spread = [[max(0.0, edge)] for edge in edges]
        face = "tab:blue" if found["name"] == findings["fastest"] else "white"
        axes.errorbar(
            [speed], [quality], yerr=spread, fmt="o", color="tab:blue", markerfacecolor=face
        )
        axes.annotate(
            found["name"], (speed, quality), (4, 4), textcoords="offset points", fontsize=7
        )
    front = sorted(_point(found) for found in settings if found["on_front"])
    axes.plot([s for s, _ in front], [q for _, q in front], "--", color="tab:gray")
    against = next(found for found in settings if found["name"] == findings["reference"])
    axes.axhline(
        against["quality"] - findings["max_loss"],
        color="tab:red",
        linewidth=0.8,
        label=f"{findings['reference']} less {findings['max_loss']:g}",
    )
    axes.plot([], [], "o", color="tab:blue", label=f"fastest within: {findings['fastest']}")
    axes.legend(fontsize=8)
    axes.margins(x=0.12)
    axes.set_xlabel("output tokens/s (median of rounds)")
    axes.set_ylabel(f"{findings['metric']} (mean, 95% interval)")
    axes.set_title(title)
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=150)
    return held.getvalue()


def _point(found: dict[str, Any]) -> tuple[float, float]:
    return found["output_tokens_per_s"], found["quality"]
