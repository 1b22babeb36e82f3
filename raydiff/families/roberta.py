"""RoBERTa checkpoints as they are published."""

from __future__ import annotations

from raydiff.families.encoder import masked_lm_spec, recognises_masked_lm
from raydiff.families.family import Family, KeyRule, Source
from raydiff.spec import ModelSpec

_TOKENS = {
    "mask_token": "<mask>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
}


def _spec(source: Source) -> ModelSpec:
    config = source.config
    # its first rows of position embeddings, up to the padding id's, belong to no position
    context = config["max_position_embeddings"] - config["pad_token_id"] - 1
    return masked_lm_spec(source, "roberta", _TOKENS, context)


FAMILY = Family(
    name="roberta",
    title="RoBERTa, e.g. roberta-base",
    recognises=recognises_masked_lm("roberta"),
    spec=_spec,
    network="roberta",
    rules=(
        KeyRule(pattern=r"roberta\.pooler\..*", targets=()),
        KeyRule(pattern=r"roberta\.embeddings\.position_ids", targets=()),
    ),
    tested="logits against a plain implementation over its published keys, padded, in a batch and "
    "over a cache; whole texts through the engine",
    unchecked="text of public weights, which were not trained to continue a text",
)
