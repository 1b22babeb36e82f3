"""BERT checkpoints as they are published, their names of layer norms and unused heads included."""

from __future__ import annotations

from raydiff.families.encoder import BERT_TOKENS, masked_lm_spec, recognises_masked_lm
from raydiff.families.family import Family, KeyRule, Source
from raydiff.spec import ModelSpec


def _spec(source: Source) -> ModelSpec:
    positions = source.config.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise ValueError(f"position_embedding_type: expected 'absolute', got {positions!r}")
    return masked_lm_spec(source, "bert", BERT_TOKENS, source.config["max_position_embeddings"])


FAMILY = Family(
    name="bert",
    title="BERT, e.g. bert-base-uncased",
    recognises=recognises_masked_lm("bert"),
    spec=_spec,
    network="bert",
    rules=(
        KeyRule(pattern=r"(.*)\.gamma", targets=(r"\1.weight",)),
        KeyRule(pattern=r"(.*)\.beta", targets=(r"\1.bias",)),
        KeyRule(pattern=r"bert\.pooler\..*", targets=()),
        KeyRule(pattern=r"cls\.seq_relationship\..*", targets=()),
        KeyRule(pattern=r"bert\.embeddings\.position_ids", targets=()),
    ),
    tested="logits against a plain implementation over its published keys, padded, in a batch and "
    "over a cache; whole texts through the engine",
    unchecked="text of public weights, which were not trained to continue a text",
)
