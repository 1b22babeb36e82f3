"""The table of families in README.md, made from `FAMILIES` and the tiny presets.

python -m raydiff.models.table
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from raydiff.decoding import POLICY_NOISE
from raydiff.families import BUNDLED, Family, family_of, load_source, load_spec
from raydiff.families.presets import PREFIX, PRESETS
from raydiff.families.recognition import FAMILIES
from raydiff.models.loading import build_module
from raydiff.spec import ModelSpec

COLUMNS = ("family", "class", "attention", "shift", "noise", "cache", "decoders", "how tested")
LAST = "unchecked against real weights"
MASKED = tuple(p for p, noises in POLICY_NOISE.items() if "absorbing" in noises)
"""The policies for masked models; `speculative` is for block-causal ones only."""


def family_table() -> str:
    """One row per family, in the order in which they are recognised."""
    head = " | ".join((*COLUMNS, LAST))
    rows = [f"| {head} |", "|---" * (len(COLUMNS) + 1) + "|"]
    return "\n".join([*rows, *(f"| {' | '.join(_row(family))} |" for family in FAMILIES)]) + "\n"


def masked_policies() -> str:
    """What "masked" stands for in the table."""
    return ", ".join(f"`{p}`" for p in MASKED if p != "speculative")


def _row(family: Family) -> list[str]:
    presets = _presets(family)
    specs = [load_spec(name) for name in presets]
    return [
        f"**{family.name}**: {family.title}",
        _distinct(f"`{_class_of(family, name)}`" for name in presets),
        _distinct(spec.attention for spec in specs),
        _distinct("by one" if spec.shift else "none" for spec in specs),
        _distinct(_noise(spec) for spec in specs),
        _distinct(_cache(spec) for spec in specs),
        _distinct(_decoders(spec) for spec in specs),
        family.tested,
        family.unchecked,
    ]


def _presets(family: Family) -> list[str]:
    """Models that show what the family comes in: bundled ones and tiny presets."""
    names = [PREFIX + name for name in PRESETS if name.startswith("tiny-")]
    names = [*sorted(BUNDLED), *names]
    return [name for name in names if family_of(load_source(name).config, name) is family]


def _class_of(family: Family, name: str) -> str:
    return type(build_module(family, load_source(name))).__name__


def _noise(spec: ModelSpec) -> str:
    return spec.noise if spec.noise != "gaussian" else f"gaussian, predicts {spec.prediction}"


def _cache(spec: ModelSpec) -> str:
    if spec.cache == "exact":
        return "exact"
    approximate = spec.noise == "absorbing"
    return "none; on request approximate (prefix, dual)" if approximate else "none"


def _decoders(spec: ModelSpec) -> str:
    policies = spec.policies()
    masked = set(MASKED) - {"speculative"}
    if not masked <= set(policies):
        return ", ".join(f"`{p}`" for p in policies)
    others = [f"`{p}`" for p in policies if p not in masked]
    return ", ".join(["masked", *others])


def _distinct(values: Iterable[str]) -> str:
    return " / ".join(dict.fromkeys(values))


def main(write: Callable[[str], object] = print) -> None:
    """Print the table."""
    write(family_table().rstrip())


if __name__ == "__main__":
    main()
