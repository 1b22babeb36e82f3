"""Family: how the checkpoints of one kind of model are recognised, described and read; no torch.

Shapes and settings come from `config.json`, never from the name of the directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raydiff.spec import ModelSpec

Config = Mapping[str, Any]
"""A checkpoint's `config.json`."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """What there is to read of a checkpoint before its weights."""

    name: str
    """The name or path it was asked for by."""
    config: Config
    generation: Config = field(default_factory=dict)
    """Its `generation_config.json`."""
    special_ids: Mapping[str, int] = field(default_factory=dict)
    """Ids of the special tokens in its tokenizer files."""
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    """Its special tokens by role (mask_token, eos_token, ...), where its tokenizer files say."""


@dataclass(frozen=True, kw_only=True)
class KeyRule:
    """How tensors of a checkpoint become tensors of the transformers class."""

    pattern: str
    """Regular expression that a checkpoint key must match in full."""
    targets: tuple[str, ...]
    """Templates of the resulting keys (`\\1`, `\\2` are the pattern's groups). Several: the tensor
    is split along its first dimension into `sizes`. None: the tensor is ignored."""
    sizes: Callable[[Config], tuple[int, ...]] | None = None
    stack: int | None = None
    """Number of the pattern's group that counts experts: the tensors of all experts are stacked
    in front, in their order."""
    part: tuple[int, int] = (0, 1)
    """(i, n): the tensor is part i of n along the (unstacked) target's first dimension."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One kind of model."""

    name: str
    title: str
    """Its public name, with examples, for people."""
    recognises: Callable[[Config], bool]
    spec: Callable[[Source], ModelSpec]
    """Raises KeyError, TypeError or ValueError where the config lacks or distorts something."""
    network: str
    """Which denoiser runs it, a key of `raydiff.models.networks.NETWORKS`."""
    stock_config: Callable[[Config], dict[str, Any]] = dict
    """The config, `model_type` included, of the transformers class that holds its weights."""
    rules: tuple[KeyRule, ...] = ()
    """The first that matches a checkpoint key applies; a key that none matches is kept."""
    tested: str
    """How the family is tested here."""
    unchecked: str
    """What could not be checked without the public weights."""
