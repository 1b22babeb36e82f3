"""raydiff's own small models: BERT's layers, and under `raydiff` in `config.json` their noise,
attention and decoding; no torch.
"""

from __future__ import annotations

from raydiff.decoding import Decoding
from raydiff.families.family import Config, Family, Source
from raydiff.spec import Attention, KVGroup, ModelSpec, Noise


def _recognises(config: Config) -> bool:
    return config.get("model_type") == "bert" and isinstance(config.get("raydiff"), dict)


def _attention(section: Config) -> Attention:
    """BERT's layers under this network know these two; a summariser's config names neither."""
    attention = section.get("attention", "encoder-block")
    if attention not in ("encoder-block", "full"):
        raise ValueError(f"raydiff.attention: expected encoder-block or full, got {attention!r}")
    return "full" if attention == "full" else "encoder-block"


def _noise(section: Config) -> Noise:
    noise = section.get("noise", "absorbing")
    if noise not in ("absorbing", "uniform"):
        raise ValueError(f"raydiff.noise: expected absorbing or uniform, got {noise!r}")
    return "uniform" if noise == "uniform" else "absorbing"


def _spec(source: Source) -> ModelSpec:
    config, section = source.config, source.config["raydiff"]
    heads = config["num_attention_heads"]
    group = KVGroup(
        layers=config["num_hidden_layers"], heads=heads, head_dim=config["hidden_size"] // heads
    )
    return ModelSpec(
        name=source.name,
        family="summarizer",
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        kv=(group,),
        attention=_attention(section),
        noise=_noise(section),
        pad_id=config["pad_token_id"],
        mask_id=section["mask_id"],
        end_ids=tuple(section["end_ids"]),
        forbidden_ids=tuple(section.get("forbidden_ids", ())),
        prompt_prefix_ids=tuple(section.get("prompt_prefix_ids", ())),
        prompt_suffix_ids=tuple(section.get("prompt_suffix_ids", ())),
        max_prompt_tokens=section["max_prompt_tokens"],
        block_length=section["block_length"],
        max_new_tokens=section["max_new_tokens"],
        target_position=section["target_position"],
        end_bias=section.get("end_bias", 0.0),
        end_threshold=section.get("end_threshold"),
        drop_after_end=section.get("drop_after_end", False),
        defaults=Decoding.from_mapping(section.get("defaults", {})),
    )


FAMILY = Family(
    name="summarizer",
    title="raydiff's own small models, e.g. the bundled summariser",
    recognises=_recognises,
    spec=_spec,
    network="bert",
    tested="golden rules, quality on a held-out split",
    unchecked="nothing: its weights are bundled",
)
