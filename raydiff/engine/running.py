"""What an engine runs on: a network's runner, its memory, and the plans it takes.

torch loads with the network: a simulated model needs none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from raydiff.config import Device, Dtype
from raydiff.engine.host import available_bytes
from raydiff.engine.latent_plan import LatentPlan
from raydiff.engine.plan import DenoisePlan, DenoiseResult, EncodePlan
from raydiff.engine.simulation import SimulatedRunner
from raydiff.simulated import SimulatedModel, is_simulated, simulated_model, simulated_spec
from raydiff.spec import ModelSpec

if TYPE_CHECKING:
    from raydiff.engine.latent import LatentRunner
    from raydiff.models.denoiser import Denoiser, LatentDenoiser

    Network = Denoiser | LatentDenoiser | SimulatedModel


class AnyRunner(Protocol):
    """What every runner does, whatever plans it takes."""

    def release(self, request_id: str) -> None:
        """Free what is kept of a request."""

    def forget_prefixes(self) -> bool:
        """Free what is kept of earlier prompts; whether there was anything."""


class TokenRunner(AnyRunner, Protocol):
    """A runner over tokens."""

    def encode(self, plan: EncodePlan) -> None:
        """Encode the plan's tokens."""

    def denoise(self, plan: DenoisePlan) -> DenoiseResult:
        """One denoising forward."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A network on its device, as an engine sees it."""

    spec: ModelSpec
    runner: AnyRunner
    value_bytes: int
    """Bytes of one number of keys, values and hidden states."""
    free_bytes: int
    """What the device can still allocate."""


def machine_of(network: Network) -> Machine:
    """The machine that runs a network, or simulates one."""
    if isinstance(network, SimulatedModel):
        return Machine(
            spec=simulated_spec(network),
            runner=SimulatedRunner(network),
            value_bytes=1,
            free_bytes=available_bytes(),
        )
    from raydiff.engine.device import free_memory_bytes

    return Machine(
        spec=network.spec,
        runner=_runner_for(network),
        value_bytes=network.dtype.itemsize,
        free_bytes=free_memory_bytes(network.device),
    )


def load_network(path_or_name: str | Path, device: Device, dtype: Dtype, threads: int) -> Network:
    """Load a checkpoint's network and set the process's torch threads; of a simulated model there
    is nothing to load.

    Raises:
        ModelError: it cannot be loaded.
    """
    if is_simulated(path_or_name):
        return simulated_model(path_or_name)
    from raydiff.engine.device import set_threads
    from raydiff.models.loading import load_denoiser

    set_threads(threads)
    return load_denoiser(path_or_name, device=device, dtype=dtype)


def _runner_for(network: Denoiser | LatentDenoiser) -> AnyRunner:
    """A runner over tokens, or over noised embeddings."""
    from raydiff.engine.latent import LatentRunner
    from raydiff.engine.runner import Runner

    if network.spec.noise == "gaussian":
        return LatentRunner(cast("LatentDenoiser", network))
    return Runner(cast("Denoiser", network))


def run_encode(runner: AnyRunner, plan: EncodePlan) -> None:
    """Run a plan; only rows over tokens have anything to encode beforehand."""
    cast("TokenRunner", runner).encode(plan)


def run_denoise(runner: AnyRunner, plan: DenoisePlan | LatentPlan) -> DenoiseResult:
    """Run a plan on the runner whose kind it is."""
    if isinstance(plan, LatentPlan):
        return cast("LatentRunner", runner).denoise(plan)
    return cast("TokenRunner", runner).denoise(plan)
