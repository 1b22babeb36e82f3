"""The speed of a model's shape on an accelerator, from its arithmetic and its memory traffic.

A forward over n positions takes the longer of two times: 2 * n * (active parameters) operations
at `COMPUTE_SHARE` of the accelerator's peak, or the bytes of all weights, and of the keys and
values of the prompts, at `BANDWIDTH_SHARE` of its bandwidth. Attention's own operations, sampling
and the time between forwards are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raydiff.bench.capacity.speed import Speed
from raydiff.bench.capacity.workload import Answering, positions
from raydiff.config import Dtype
from raydiff.decoding import Decoding
from raydiff.errors import UsageError, invalid
from raydiff.families import load_source
from raydiff.models.precision import planned_precision
from raydiff.models.sizes import model_size
from raydiff.request import Usage
from raydiff.spec import ModelSpec

COMPUTE_SHARE = 0.4
BANDWIDTH_SHARE = 0.7


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """What a data sheet says of an accelerator."""

    tflops: float
    """Peak of dense bf16 products, 10^12 operations/s."""
    bandwidth_gb_s: float
    """Of its memory, 10^9 bytes/s."""
    memory_gb: float


ACCELERATORS: dict[str, Accelerator] = {
    "h200": Accelerator(tflops=989, bandwidth_gb_s=4800, memory_gb=141),
    "h100": Accelerator(tflops=989, bandwidth_gb_s=3350, memory_gb=80),
    "a100-80gb": Accelerator(tflops=312, bandwidth_gb_s=2039, memory_gb=80),
    "l40s": Accelerator(tflops=362, bandwidth_gb_s=864, memory_gb=48),
    "a10g": Accelerator(tflops=70, bandwidth_gb_s=600, memory_gb=24),
    "l4": Accelerator(tflops=121, bandwidth_gb_s=300, memory_gb=24),
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What of a model decides its speed."""

    active_parameters: float
    """Those that a token goes through; of experts only the chosen."""
    weight_bytes: float
    cache_bytes_per_position: float


def shape_of(model: str, spec: ModelSpec, dtype: Dtype) -> Shape:
    """The shape of a checkpoint or preset at a precision."""
    precision = planned_precision(dtype)
    size = model_size(model, precision)
    idle = _idle_parameters(dict(load_source(model).config))
    return Shape(
        active_parameters=size.parameters - idle,
        weight_bytes=size.weight_bytes,
        cache_bytes_per_position=spec.cache_bytes_per_position(precision.activations.itemsize),
    )


def _idle_parameters(config: dict[str, Any]) -> float:
    """Parameters of experts that a token does not go through."""
    body = {**config, **config.get("text_config", {})}
    experts = body.get("num_experts")
    chosen = body.get("num_experts_per_tok") or body.get("top_k_experts")
    inner = body.get("moe_intermediate_size")
    if not (experts and chosen and inner):
        return 0.0
    layers = body["num_hidden_layers"] - (body.get("first_k_dense_replace") or 0)
    return float(layers * (experts - chosen) * 3 * body["hidden_size"] * inner)


def roofline_speed(
    spec: ModelSpec,
    shape: Shape,
    decoding: Decoding,
    *,
    accelerator: str,
    batch: int,
    prompt_tokens: float,
    tokens_per_forward: float | None,
) -> Speed:
    """Speed of a replica of one accelerator with `batch` rows in each forward.

    Raises:
        UsageError: the accelerator is not known, or too small.
    """
    device = ACCELERATORS.get(accelerator)
    if device is None:
        expected = f"one of {', '.join(ACCELERATORS)}"
        raise UsageError(invalid("accelerator", expected=expected, got=accelerator), "accelerator")
    output = float(decoding.max_tokens or spec.max_new_tokens)
    held = shape.weight_bytes + batch * (prompt_tokens + output) * shape.cache_bytes_per_position
    if held > device.memory_gb * 1e9:
        expected = f"an accelerator with {held / 1e9:.0f} GB for weights and {batch} rows' caches"
        got = f"{accelerator} with {device.memory_gb:g} GB"
        raise UsageError(invalid("accelerator", expected=expected, got=got), "accelerator")
    per_forward, why = _tokens_per_forward(spec, decoding, tokens_per_forward)
    usage = Usage(
        prompt_tokens=round(prompt_tokens),
        completion_tokens=round(output),
        forwards=max(1, round(output / per_forward)),
    )
    work = positions(spec, decoding, usage)
    per_row = (work - (usage.prompt_tokens if spec.cache == "exact" else 0)) / usage.forwards
    seconds = usage.forwards * _forward_s(device, shape, per_row * batch, batch * prompt_tokens)
    if spec.cache == "exact":
        seconds += _forward_s(device, shape, prompt_tokens * batch, 0)
    return Speed(
        seconds_per_position=seconds / batch / work,
        answering=Answering(output_tokens=output, forwards=usage.forwards),
        source=f"a model of {accelerator} by its data sheet, {batch} rows a forward",
        assumptions=(
            f"{COMPUTE_SHARE:.0%} of peak operations and {BANDWIDTH_SHARE:.0%} of bandwidth",
            "answers are as long as max_tokens allows",
            why,
        ),
    )


def _forward_s(device: Accelerator, shape: Shape, computed: float, cached: float) -> float:
    operations = 2 * computed * shape.active_parameters
    traffic = shape.weight_bytes + cached * shape.cache_bytes_per_position
    return max(
        operations / (device.tflops * 1e12 * COMPUTE_SHARE),
        traffic / (device.bandwidth_gb_s * 1e9 * BANDWIDTH_SHARE),
    )


def _tokens_per_forward(
    spec: ModelSpec, decoding: Decoding, given: float | None
) -> tuple[float, str]:
    if given is not None:
        return given, f"{given:g} tokens a forward, as told"
    block = decoding.block_length or spec.block_length
    if decoding.policy == "quota" and decoding.steps:
        return block / decoding.steps, f"{decoding.steps} forwards for each block of {block}"
    return 1.0, "1 token a forward, the fewest: tell it what you measured"
