"""Networks by name: how a family's module is built and made a denoiser.

Each network's file exposes `build(config)`, which makes the transformers module of a stock config
(on the meta device too), and `wrap(module, spec)`. Nothing is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from torch import nn

from raydiff.models.denoiser import Denoiser, LatentDenoiser
from raydiff.spec import ModelSpec


class _NetworkFile(Protocol):
    """What the file of a network exposes."""

    def build(self, config: Mapping[str, Any]) -> nn.Module: ...

    def wrap(self, module: nn.Module, spec: ModelSpec) -> Denoiser | LatentDenoiser: ...


@dataclass(frozen=True)
class NetworkKind:
    """One kind of network, by the Python module that implements it."""

    module: str

    def build(self, config: Mapping[str, Any]) -> nn.Module:
        """The transformers module of a stock config, on torch's default device."""
        return self._file().build(config)

    def wrap(self, module: nn.Module, spec: ModelSpec) -> Denoiser | LatentDenoiser:
        """The denoiser that runs a module whose weights are in place."""
        return self._file().wrap(module, spec)

    def _file(self) -> _NetworkFile:
        return cast(_NetworkFile, import_module(self.module))


NETWORKS: dict[str, NetworkKind] = {
    "bert": NetworkKind("raydiff.models.bert"),
    "roberta": NetworkKind("raydiff.models.bert"),
    "modernbert": NetworkKind("raydiff.models.modernbert"),
    "decoder": NetworkKind("raydiff.models.decoder"),
    "diffusion-gemma": NetworkKind("raydiff.models.diffusion_gemma"),
    "embedding": NetworkKind("raydiff.models.embedding"),
}
"""By the name that `Family.network` gives."""
