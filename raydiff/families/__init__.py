"""The families of diffusion language model: which checkpoint belongs to which; no torch."""

from __future__ import annotations

from raydiff.families.family import Family, KeyRule, Source
from raydiff.families.recognition import (
    BUNDLED,
    family_of,
    load_source,
    load_spec,
    model_path,
    without_files,
)

__all__ = [
    "BUNDLED",
    "Family",
    "KeyRule",
    "Source",
    "family_of",
    "load_source",
    "load_spec",
    "model_path",
    "without_files",
]
