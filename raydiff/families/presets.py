"""Shapes by name, to plan speed and memory before a download: `random:<name>`; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from raydiff.errors import ModelError, invalid
from raydiff.families import shapes, tiny
from raydiff.families.family import Config, Source

PREFIX = "random:"


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A model's shape without its weights."""

    title: str
    """The public checkpoint that has this shape, or what it is."""
    config: Config
    special_ids: Mapping[str, int] = field(default_factory=dict)
    unchecked: str = ""
    """What of the shape was not read in the public config."""


_FROM_QWEN3 = "taken from the Qwen3 model it began as, but for what its family's 4B config says"
_NOT_READ = "its public config was not at hand"
_SECOND_HAND = "read in other projects, not in its public config"
_FROM_QWEN2 = "taken from the Qwen2.5 model it began as"

PRESETS: dict[str, Preset] = {
    "llada-8b": Preset(title="GSAI-ML/LLaDA-8B-Instruct", config=shapes.LLADA_8B),
    "llada-1.5": Preset(title="GSAI-ML/LLaDA-1.5", unchecked=_NOT_READ, config=shapes.LLADA_8B),
    "dream-7b": Preset(title="Dream-org/Dream-v0-Instruct-7B", config=shapes.DREAM_7B),
    "sdar-1.7b": Preset(
        title="JetLM/SDAR-1.7B-Chat",
        config=shapes.sdar(hidden=2048, layers=28, heads=16, inner=6144),
        unchecked=_FROM_QWEN3,
    ),
    "sdar-4b": Preset(
        title="JetLM/SDAR-4B-Chat",
        config=shapes.sdar(hidden=2560, layers=36, heads=32, inner=9728),
    ),
    "sdar-8b": Preset(
        title="JetLM/SDAR-8B-Chat",
        config=shapes.sdar(hidden=4096, layers=36, heads=32, inner=12288),
        unchecked=_FROM_QWEN3,
    ),
    "sdar-30b-a3b": Preset(
        title="JetLM/SDAR-30B-A3B-Chat", config=shapes.SDAR_30B, unchecked=_FROM_QWEN3
    ),
    "fast-dllm-v2-1.5b": Preset(
        title="Efficient-Large-Model/Fast_dLLM_v2_1.5B",
        config=shapes.fast_dllm(shapes.QWEN2_1_5B),
        unchecked=_FROM_QWEN2,
    ),
    "fast-dllm-v2-7b": Preset(
        title="Efficient-Large-Model/Fast_dLLM_v2_7B",
        config=shapes.fast_dllm(shapes.QWEN2_7B),
        unchecked=_FROM_QWEN2,
    ),
    "llada2-mini": Preset(
        title="inclusionAI/LLaDA2.0-mini",
        unchecked=_SECOND_HAND,
        config=shapes.llada2(hidden=2048, layers=20, heads=16, inner=5120, expert_inner=512),
    ),
    "llada2-flash": Preset(
        title="inclusionAI/LLaDA2.0-flash",
        config=shapes.llada2(hidden=4096, layers=32, heads=32, inner=9216, expert_inner=1024),
        unchecked="taken from Ling-flash-2.0, which it began as",
    ),
    "diffusiongemma-26b-a4b": Preset(
        title="google/diffusiongemma-26B-A4B-it, without its vision part",
        unchecked=_SECOND_HAND,
        config=shapes.DIFFUSION_GEMMA,
    ),
    "a2d-qwen3-0.6b": Preset(
        title="dllm-hub/Qwen3-0.6B-diffusion-mdlm", unchecked=_NOT_READ, config=shapes.a2d()
    ),
    "a2d-qwen3-0.6b-mdlm": Preset(
        title="dllm-hub/Qwen3-0.6B-diffusion-mdlm", unchecked=_NOT_READ, config=shapes.a2d()
    ),
    "a2d-qwen3-0.6b-bd3lm": Preset(
        title="dllm-hub/Qwen3-0.6B-diffusion-bd3lm",
        unchecked=_NOT_READ,
        config=shapes.a2d(block_size=32),
    ),
    "bert-base": Preset(
        title="google-bert/bert-base-uncased",
        unchecked=_NOT_READ,
        config=shapes.BERT_BASE,
        special_ids=shapes.BERT_IDS,
    ),
    "roberta-base": Preset(
        title="FacebookAI/roberta-base",
        unchecked=_NOT_READ,
        config=shapes.ROBERTA_BASE,
        special_ids=shapes.ROBERTA_IDS,
    ),
    "modernbert-base": Preset(
        title="answerdotai/ModernBERT-base",
        unchecked=_NOT_READ,
        config=shapes.modernbert(hidden=768, layers=22, heads=12, inner=1152),
        special_ids=shapes.MODERNBERT_IDS,
    ),
    "modernbert-large": Preset(
        title="answerdotai/ModernBERT-large",
        unchecked=_NOT_READ,
        config=shapes.modernbert(hidden=1024, layers=28, heads=16, inner=2624),
        special_ids=shapes.MODERNBERT_IDS,
    ),
    "diffuseq": Preset(
        title="DiffuSeq's QQP model",
        unchecked=_NOT_READ,
        config=shapes.DIFFUSEQ,
        special_ids=shapes.BERT_IDS,
    ),
    "tiny-summarizer": Preset(title="the bundled model's family, tiny", config=tiny.SUMMARIZER),
    "tiny-llada": Preset(title="LLaDA, tiny", config=tiny.LLADA),
    "tiny-dream": Preset(title="Dream, tiny", config=tiny.DREAM),
    "tiny-sdar": Preset(title="SDAR, tiny", config=tiny.SDAR),
    "tiny-sdar-long": Preset(
        title="SDAR, tiny, with a context of 8,192 tokens", config=tiny.SDAR_LONG
    ),
    "tiny-sdar-moe": Preset(title="SDAR with experts, tiny", config=tiny.SDAR_MOE),
    "tiny-fast-dllm": Preset(title="Fast-dLLM v2, tiny", config=tiny.FAST_DLLM),
    "tiny-llada2": Preset(title="LLaDA2.0, tiny", config=tiny.LLADA2),
    "tiny-a2d-mdlm": Preset(title="A2D by MDLM, tiny", config=tiny.A2D_MDLM),
    "tiny-a2d-bd3lm": Preset(title="A2D by BD3LM, tiny", config=tiny.A2D_BD3LM),
    "tiny-bert": Preset(title="BERT, tiny", config=tiny.BERT),
    "tiny-roberta": Preset(title="RoBERTa, tiny", config=tiny.ROBERTA),
    "tiny-modernbert": Preset(title="ModernBERT, tiny", config=tiny.MODERNBERT),
    "tiny-diffusion-gemma": Preset(title="DiffusionGemma, tiny", config=tiny.DIFFUSION_GEMMA),
    "tiny-diffuseq": Preset(
        title="DiffuSeq, tiny", config=tiny.DIFFUSEQ, special_ids=tiny.DIFFUSEQ_IDS
    ),
}


def is_random(path_or_name: str | Path) -> bool:
    """Whether a name asks for random weights."""
    return str(path_or_name).startswith(PREFIX)


def random_source(name: str) -> Source:
    """What a preset's checkpoint would say of itself.

    Raises:
        ModelError: there is no such preset.
    """
    preset = PRESETS.get(name.removeprefix(PREFIX))
    if preset is None:
        names = ", ".join(PRESETS)
        raise ModelError(invalid("model", expected=f"{PREFIX} and one of {names}", got=name))
    return Source(name=name, config=preset.config, special_ids=preset.special_ids)
