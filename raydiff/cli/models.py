"""`raydiff models`: bundled models, families and public shapes, or what given ones are."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from raydiff.config import Dtype
from raydiff.families import BUNDLED, family_of, load_source, load_spec, model_path
from raydiff.families.presets import PREFIX, PRESETS, is_random
from raydiff.families.recognition import FAMILIES
from raydiff.spec import ModelSpec

if TYPE_CHECKING:
    from raydiff.models.precision import Precision

Row = dict[str, Any]

LISTED = (
    "name",
    "family",
    "parameters",
    "weight_bytes",
    "cache",
    "cache_bytes_per_position",
    "cache_bytes",
    "attention",
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "models",
        help="list models, families and public shapes, and what they take",
        description="Without a model: the bundled ones, the families of checkpoints that load, and "
        "the public shapes that random:PRESET builds. Bytes are those of weights, and of the keys "
        "and values of one sequence of the greatest length.",
    )
    parser.add_argument(
        "model", nargs="*", help="bundled names, checkpoint directories, random:PRESET"
    )
    parser.add_argument("--families", action="store_true", help="list families only")
    parser.add_argument("--presets", action="store_true", help="list presets only")
    parser.add_argument(
        "--dtype",
        default="bf16",
        choices=get_args(Dtype),
        help="what the bytes are counted for (bf16)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the models, families and presets asked for."""
    from raydiff.models.precision import planned_precision

    precision = planned_precision(args.dtype)
    if args.model:
        described = [describe(name, precision) for name in args.model]
        print(json.dumps({"models": described}) if args.json else "\n".join(map(_page, described)))
        return 0
    report = _report(args, precision)
    print(json.dumps(report) if args.json else _listing(report, precision.name))
    return 0


def describe(path_or_name: str, precision: Precision) -> Row:
    """What one model is and takes, from its config alone.

    Raises:
        ModelError: the checkpoint is missing or malformed.
    """
    from raydiff.models.sizes import model_size

    spec, size = load_spec(path_or_name), model_size(path_or_name, precision)
    width, defaults = precision.activations.itemsize, spec.defaults
    preset = PRESETS.get(path_or_name.removeprefix(PREFIX)) if is_random(path_or_name) else None
    return {
        "name": spec.name,
        **_origin(path_or_name),
        "family": spec.family,
        "noise": spec.noise,
        "attention": spec.attention,
        "parameters": size.parameters,
        "dtype": precision.name,
        "weight_bytes": size.weight_bytes,
        "vocabulary": spec.vocab_size,
        "context_length": positions(spec),
        "max_prompt_tokens": spec.max_prompt_tokens,
        "max_new_tokens": spec.max_new_tokens,
        "block_length": spec.block_length,
        "cache": exactness(spec),
        "cache_bytes_per_position": spec.cache_bytes_per_position(width),
        "cache_bytes": cache_bytes(spec, bytes_per_value=width),
        "policies": list(spec.policies()),
        "default_policy": defaults.policy,
        "default_steps": defaults.steps,
        "default_threshold": defaults.threshold,
        "unchecked": (preset.unchecked if preset else "") or None,
    }


def exactness(spec: ModelSpec) -> str:
    """exact, approximate (on request only) or none."""
    if spec.cache == "exact":
        return "exact"
    return "approximate" if spec.noise == "absorbing" else "none"


def positions(spec: ModelSpec) -> int:
    """Most positions of one sequence."""
    both = spec.max_prompt_tokens + spec.max_new_tokens
    return min(both, spec.context_length or both)


def cache_bytes(spec: ModelSpec, *, bytes_per_value: int) -> int:
    """Bytes of keys and values that one sequence of the greatest length caches, if it may."""
    if exactness(spec) == "none":
        return 0
    return positions(spec) * spec.cache_bytes_per_position(bytes_per_value)


def families() -> list[Row]:
    """What checkpoints load, by family; `cache` and `policies` are those of its presets."""
    members: dict[str, list[str]] = {family.name: [] for family in FAMILIES}
    for name, preset in PRESETS.items():
        members[family_of(preset.config, name).name].append(name)
    rows = []
    for family in FAMILIES:
        specs = [load_spec(PREFIX + name) for name in members[family.name]]
        rows.append(
            {
                "name": family.name,
                "title": family.title,
                "presets": members[family.name],
                "cache": list(dict.fromkeys(map(exactness, specs))),
                "policies": list(dict.fromkeys(p for spec in specs for p in spec.policies())),
                "tested": family.tested,
                "unchecked": family.unchecked,
            }
        )
    return rows


def _origin(path_or_name: str) -> Row:
    """Where its weights come from, or what has its shape."""
    if is_random(path_or_name):
        load_source(path_or_name)  # an unknown preset is refused by name
        return {"title": PRESETS[path_or_name.removeprefix(PREFIX)].title}
    return {"path": str(model_path(path_or_name))}


def _report(args: argparse.Namespace, precision: Precision) -> Row:
    both = args.families == args.presets
    report: Row = {"dtype": precision.name}
    if both:
        report["models"] = [describe(name, precision) for name in sorted(BUNDLED)]
    if both or args.families:
        report["families"] = families()
    if both or args.presets:
        report["presets"] = [describe(PREFIX + name, precision) for name in PRESETS]
    return report


def _listing(report: Row, dtype: str) -> str:
    parts = []
    if "models" in report:
        parts.append(f"Bundled models, at {dtype}\n{_table(report['models'])}")
    if "families" in report:
        lines = [line for family in report["families"] for line in _family_lines(family)]
        parts.append("\n".join(["Families, recognised by config.json", *lines]))
    if "presets" in report:
        heading = f"Shapes to build with random weights, at {dtype}"
        parts.append(f"{heading}\n{_table(report['presets'])}")
    return "\n\n".join(parts)


def _family_lines(family: Row) -> list[str]:
    cache, policies = " or ".join(family["cache"]), ", ".join(family["policies"])
    return [f"{family['name']:<16} {family['title']}", f"  cache {cache}; policies {policies}"]


def _table(rows: Sequence[Row]) -> str:
    from raydiff.bench.report import table

    shown = [{key: _shown(key, row[key]) for key in LISTED} for row in rows]
    renamed = {"weight_bytes": "weights", "cache_bytes_per_position": "per position"}
    titles = [{**renamed, "cache_bytes": "per sequence"}.get(key, key) for key in LISTED]
    return table([dict(zip(titles, row.values(), strict=True)) for row in shown], titles)


def _page(row: Row) -> str:
    lines = [
        f"  {key.replace('_', ' '):<26}{_shown(key, row[key])}" for key in row if key != "name"
    ]
    return "\n".join([row["name"], *lines])


def _shown(key: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(value)
    if not isinstance(value, int):
        return str(value)
    if "bytes" in key:
        return _large(value, "B")
    return _large(value) if key == "parameters" else f"{value:,}"


def _large(value: int, unit: str = "") -> str:
    giga = "G" if unit else "B"  # of parameters, billions
    for size, prefix in ((10**9, giga), (10**6, "M"), (10**3, "k")):
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value} {unit}".rstrip()
