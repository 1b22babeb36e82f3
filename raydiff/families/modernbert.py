"""ModernBERT checkpoints as they are published, plain or tuned as chats (ModernBERT-chat)."""

from __future__ import annotations

from raydiff.families.encoder import BERT_TOKENS, masked_lm_spec, recognises_masked_lm
from raydiff.families.family import Family, Source
from raydiff.spec import ModelSpec


def _spec(source: Source) -> ModelSpec:
    config = source.config
    scaled = [config.get("rope_scaling"), *(config.get("rope_parameters") or {}).values()]
    types = {rope.get("rope_type", "default") for rope in scaled if rope}
    if types - {"default"}:
        raise ValueError(f"rope_type: expected 'default', got {sorted(types)}")
    return masked_lm_spec(source, "modernbert", BERT_TOKENS, config["max_position_embeddings"])


FAMILY = Family(
    name="modernbert",
    title="ModernBERT, e.g. ModernBERT-base, ModernBERT-large-chat",
    recognises=recognises_masked_lm("modernbert"),
    spec=_spec,
    network="modernbert",
    tested="logits against a plain implementation over its published keys, padded, in a batch and "
    "over a cache; whole texts through the engine",
    unchecked="text of public weights; that chats name their padding token as eos_token",
)
