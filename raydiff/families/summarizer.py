"""raydiff's own small models: BERT's layers, and under `raydiff` in `config.json` their noise,
attention and decoding; no torch.
"""

from __future__ import annotations

from raydiff.decoding import Decoding
from raydiff.families.family import Config, Family, Source
from raydiff.spec import KVGroup, ModelSpec


def _recognises(config: Config) -> bool:
    return config.get("model_type") == "bert" and isinstance(config.get("raydiff"), dict)


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
        attention=section.get("attention", "encoder-block"),
        noise=section.get("noise", "absorbing"),
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
