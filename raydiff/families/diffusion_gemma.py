"""DiffusionGemma: uniform noise on a canvas, a causal encoder, a bidirectional decoder; no torch.

Source: the public model's configuration and transformers' `diffusion_gemma`. Its chat template
(Gemma 4's turns, thinking included) comes with the checkpoint.
"""

from __future__ import annotations

from typing import Any

from raydiff.decoding import Decoding
from raydiff.families.family import Config, Family, KeyRule, Source
from raydiff.spec import KVGroup, ModelSpec

CANVAS_LENGTH = 256
FULL = "full_attention"
BEGIN_ID = 2
PERIOD = 6
"""Where the config does not list them, every sixth layer, and the last, attends in full."""
MAX_TOKENS = 256

_ENCODER = r"model\.encoder\."
_LAYER = _ENCODER + r"language_model\.layers\.\d+\."
RULES = (
    KeyRule(pattern=_ENCODER + r"(vision_tower|embed_vision)\..*", targets=()),
    # copies that transformers ties to the decoder's weights; the encoder's own scalars are kept
    KeyRule(pattern=_LAYER + r"(?!layer_scalar$).*", targets=()),
    KeyRule(pattern=_ENCODER + r"language_model\.(embed_tokens|norm)\.weight", targets=()),
    KeyRule(pattern=r"lm_head\.weight", targets=()),
)
"""Images are not read, so the vision weights are ignored, and copies of tied weights with them."""


def _recognises(config: Config) -> bool:
    return config.get("model_type") == "diffusion_gemma"


def _spec(source: Source) -> ModelSpec:
    config, text = source.config, source.config["text_config"]
    _check(config, text)
    canvas = int(config.get("canvas_length") or CANVAS_LENGTH)
    context = int(text.get("max_position_embeddings", 131072))
    bos = text.get("bos_token_id", BEGIN_ID)
    pad = _first(source, "pad_token_id", 0)
    return ModelSpec(
        name=source.name,
        family="diffusion-gemma",
        vocab_size=text["vocab_size"],
        hidden_size=text["hidden_size"],
        kv=_kv(text),
        attention="causal-encoder",
        noise="uniform",
        self_conditioning=True,
        pad_id=pad,
        mask_id=pad,
        end_ids=_ids(_first(source, "eos_token_id", 1)),
        prompt_prefix_ids=() if bos is None else (bos,),
        context_length=context,
        max_prompt_tokens=context - canvas,
        block_length=canvas,
        max_new_tokens=context - 1,
        temperature_schedule=_schedule(source.generation),
        defaults=_defaults(source.generation, canvas, context - 1),
    )


def _check(config: Config, text: Config) -> None:
    """Refuse what the network would run wrongly."""
    if text.get("use_bidirectional_attention") == "all":
        raise ValueError("use_bidirectional_attention: expected null or 'vision', got 'all'")
    if not config.get("tie_word_embeddings", True):
        raise ValueError("tie_word_embeddings: expected true, got false")


def _kv(text: Config) -> tuple[KVGroup, ...]:
    """Layers with a sliding window, then those without."""
    kinds = _kinds(text)
    groups = []
    for full in (False, True):
        layers = [index for index, kind in enumerate(kinds) if (kind == FULL) is full]
        if layers:
            heads, head_dim = _heads(text, layers[0], full)
            groups.append(KVGroup(layers=len(layers), heads=heads, head_dim=head_dim))
    return tuple(groups)


def _kinds(text: Config) -> list[str]:
    count = text["num_hidden_layers"]
    regular = [FULL if (i + 1) % PERIOD == 0 else "sliding_attention" for i in range(count)]
    return [*(text.get("layer_types") or regular)[:-1], FULL]


def _heads(text: Config, layer: int, full: bool) -> tuple[int, int]:
    """Key/value heads and head size: published configs name those of full layers apart, later
    versions of transformers write them layer by layer."""
    heads, head_dim = text["num_key_value_heads"], text.get("head_dim", 256)
    if full and "per_layer_config" not in text:
        heads = _or(text.get("num_global_key_value_heads"), heads)
        head_dim = text.get("global_head_dim", 512)
    own = (text.get("per_layer_config") or {}).get(str(layer)) or {}
    return _or(own.get("num_key_value_heads"), heads), _or(own.get("head_dim"), head_dim)


def _first(source: Source, name: str, otherwise: Any) -> Any:
    for place in (source.generation, source.config, source.config["text_config"]):
        if place.get(name) is not None:
            return place[name]
    return otherwise


def _ids(value: int | list[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def _schedule(generation: Config) -> tuple[float, float]:
    return _or(generation.get("t_max"), 0.8), _or(generation.get("t_min"), 0.4)


def _defaults(generation: Config, canvas: int, most: int) -> Decoding:
    stability = _or(generation.get("stability_threshold"), 1)
    if stability != 1:
        raise ValueError(f"stability_threshold: expected 1, got {stability}")
    sampler = generation.get("sampler_config") or {}
    return Decoding(
        policy="entropy_bound",
        steps=_or(generation.get("max_denoising_steps"), 48),
        entropy_bound=_or(sampler.get("entropy_bound"), 0.1),
        stop_entropy=_or(generation.get("confidence_threshold"), 0.005),
        max_tokens=min(_or(generation.get("max_new_tokens"), MAX_TOKENS), most),
        block_length=canvas,
    )


def _or(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value


_TEXT_KEYS = ("model_type", "text_config", "canvas_length", "tie_word_embeddings")
"""What of a config the text network needs; the vision part stays unbuilt."""

FAMILY = Family(
    name="diffusion-gemma",
    title="DiffusionGemma (26B-A4B)",
    recognises=_recognises,
    spec=_spec,
    network="diffusion-gemma",
    stock_config=lambda config: {key: config[key] for key in _TEXT_KEYS if key in config},
    rules=RULES,
    tested="logits against an independent plain implementation and the stock module; tokens "
    "against transformers' own generate with its draws matched, over several canvases",
    unchecked="the public weights; images are not read, and quantised checkpoints (FP8, NVFP4) "
    "are refused",
)
