"""The findings of an evaluation for people. No text of any document is in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from raydiff.bench.evaluation.scores import METRICS

Row = Mapping[str, Any]


def markdown(report: Row, plot_name: str) -> str:
    """The report as Markdown, the plot beside it."""
    settings = sorted(report["settings"], key=lambda s: s["output_tokens_per_s"], reverse=True)
    metric = report["metric"]
    lines = [
        f"# Decoding settings of {report['model']}",
        "",
        f"{report['documents']} documents of `{report['input']}`, {report['rounds']} interleaved "
        f"rounds, seed {report['seed']}. " + _where(report["circumstances"]),
        "",
        f"**{verdict(report)}**",
        "",
        f"![{metric} over output tokens/s]({plot_name})",
        "",
        f"Quality is mean {metric}; what failed or came out empty counts 0. Loss is against "
        f"`{report['reference']}`, over the same documents. A setting is within "
        f"{report['max_loss']:g} when its loss is below that with {report['confidence']:.0%} "
        "confidence (paired bootstrap).",
        "",
        *_table(_SPEED, (_speed(s) for s in settings)),
        "",
        "Medians of the rounds. In brackets: slowest and fastest round; interval over documents.",
        "",
        "## Faithfulness",
        "",
        *_table(("setting", *_shown(settings)), (_means(s, settings) for s in settings)),
        "",
        *(f"- `{name}`: {METRICS[name].help}" for name in _shown(settings)),
        "",
        "## Failed documents",
        "",
        *(_failures(report, settings) or ["None."]),
    ]
    return "\n".join(lines) + "\n"


def verdict(report: Row) -> str:
    """The choice in a sentence or two."""
    fastest, reference = report["fastest"], report["reference"]
    by_name = {setting["name"]: setting for setting in report["settings"]}
    speed = by_name[fastest]["output_tokens_per_s"]
    limit = f"a loss of {report['max_loss']:g} {report['metric']}"
    if fastest == reference:
        said = f"{fastest} is the fastest setting within {limit}: {speed:,.0f} output tokens/s."
    else:
        said = (
            f"{fastest} is the fastest setting within {limit} against {reference}: {speed:,.0f} "
            f"output tokens/s, {report['speedup']:.2f} times as many; it loses "
            f"{by_name[fastest]['loss']:.4f}."
        )
    by_documents = report["fastest_by_documents"]
    if by_documents != fastest:
        rate = by_name[by_documents]["documents_per_s"]
        said += f" By documents it is {by_documents}: {rate:,.1f} documents/s."
    return said


def _where(circumstances: Row) -> str:
    gpus = ", ".join(circumstances["gpus"])
    machine = gpus or f"{circumstances['processor']}, {circumstances['cores']} cores"
    return f"Measured on {machine}, raydiff commit {circumstances['commit'] or 'unknown'}."


_SPEED = (
    "setting",
    "output tokens/s",
    "documents/s",
    "tokens a forward",
    "quality",
    "loss",
    "at most",
    "within",
    "front",
)


def _speed(s: Row) -> Sequence[str]:
    rounds = s["output_tokens_per_s_rounds"]
    return (
        f"`{s['name']}`",
        f"{s['output_tokens_per_s']:,.0f} ({min(rounds):,.0f}-{max(rounds):,.0f})",
        f"{s['documents_per_s']:,.2f}",
        f"{s['tokens_per_forward']:.2f}",
        f"{s['quality']:.4f} ({s['quality_low']:.4f}-{s['quality_high']:.4f})",
        f"{s['loss']:.4f}",
        f"{s['loss_bound']:.4f}",
        "yes" if s["within"] else "",
        "yes" if s["on_front"] else "",
    )


def _shown(settings: Sequence[Row]) -> list[str]:
    """Metrics that some setting has a value of."""
    return [name for name in METRICS if any(s["metrics"][name] for s in settings)]


def _means(s: Row, settings: Sequence[Row]) -> Sequence[str]:
    found = (s["metrics"][name] for name in _shown(settings))
    return (f"`{s['name']}`", *("-" if m is None else f"{m['mean']:.3f}" for m in found))


def _failures(report: Row, settings: Sequence[Row]) -> list[str]:
    lines = [
        f"- `{s['name']}`: {s['failed']} ("
        + ", ".join(f"{kind} {count}" for kind, count in s["error_types"].items())
        + ")"
        for s in settings
        if s["failed"]
    ]
    if report["unreadable"]:
        lines.append(
            f"- {report['unreadable']} documents of the sample are null, empty or no text."
        )
    return lines


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" + "|---:" * (len(head) - 1) + "|"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"
