"""Which runner a network needs, and the plans it takes."""

from __future__ import annotations

from typing import cast

from raydiff.engine.latent import LatentRunner
from raydiff.engine.latent_plan import LatentPlan
from raydiff.engine.plan import DenoisePlan, DenoiseResult, EncodePlan
from raydiff.engine.runner import Runner
from raydiff.models.denoiser import Denoiser, LatentDenoiser

AnyRunner = Runner | LatentRunner


def runner_for(network: Denoiser | LatentDenoiser) -> AnyRunner:
    """A runner over tokens, or over noised embeddings."""
    if network.spec.noise == "gaussian":
        return LatentRunner(cast(LatentDenoiser, network))
    return Runner(cast(Denoiser, network))


def forget_prefixes(runner: AnyRunner) -> bool:
    """Free what a runner keeps of earlier prompts; whether there was anything."""
    return isinstance(runner, Runner) and runner.forget_prefixes()


def run_encode(runner: AnyRunner, plan: EncodePlan) -> None:
    """Run a plan; only rows over tokens have anything to encode beforehand."""
    assert isinstance(runner, Runner)
    runner.encode(plan)


def run_denoise(runner: AnyRunner, plan: DenoisePlan | LatentPlan) -> DenoiseResult:
    """Run a plan on the runner whose kind it is."""
    if isinstance(plan, LatentPlan):
        assert isinstance(runner, LatentRunner)
        return runner.denoise(plan)
    assert isinstance(runner, Runner)
    return runner.denoise(plan)
