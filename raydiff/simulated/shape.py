"""The spec of a simulated model, and the ids of its vocabulary."""

from __future__ import annotations

from raydiff.decoding import Decoding
from raydiff.simulated.naming import SimulatedModel
from raydiff.spec import KVGroup, ModelSpec

FAMILY = "simulated"

BYTES = 256
"""Ids below are bytes, in the order of the synthetic tokenizer's alphabet."""
PAD, END, MASK = BYTES, BYTES + 1, BYTES + 2

LETTERS = range(64, 90)
"""Ids of a to z."""
SPACE = 220


def simulated_spec(model: SimulatedModel) -> ModelSpec:
    """Blocks that attend to an encoded prompt, as the bundled summariser's do. Its cache takes next
    to no memory: rows bound a batch, not bytes."""
    return ModelSpec(
        name=model.name,
        family=FAMILY,
        vocab_size=BYTES + 3,
        hidden_size=1,
        kv=(KVGroup(layers=1, heads=1, head_dim=1),),
        attention="encoder-block",
        pad_id=PAD,
        mask_id=MASK,
        end_ids=(END,),
        forbidden_ids=(PAD,),
        max_prompt_tokens=model.context,
        block_length=model.block_length,
        max_new_tokens=model.longest,
        limited_to=("quota", "threshold"),
        defaults=Decoding(
            policy="quota",
            steps=model.forwards,
            max_tokens=min(model.block_length, model.longest),
            temperature=1.0,
        ),
    )
