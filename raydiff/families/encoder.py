"""What masked language models of encoders have in common as denoisers: full attention, absorbing
noise by their own mask token, no shift; no torch.

A text is laid out as in their training: the begin token, the text, the end token, then padding
that nothing attends to. Encoders tuned as denoisers by the MDLM recipe of the dllm project name
their padding token as `eos_token`: they learn to predict it after a text and to see it, and their
chats put each turn between tags written in plain text.
"""

from __future__ import annotations

from collections.abc import Callable

from raydiff.decoding import Decoding
from raydiff.families.family import Config, Source
from raydiff.spec import KVGroup, ModelSpec

BLOCK_LENGTH = 32
MAX_TOKENS = 64
HEADED = ("ForMaskedLM", "ForPreTraining")
"""Endings of classes that bring the head which predicts tokens."""

BERT_TOKENS = {
    "mask_token": "[MASK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
}
"""Contents of the special tokens of BERT's vocabularies, by role."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% set tag = {'system': 'SYS', 'user': 'Question', 'assistant': 'Answer'}[message.role] %}"
    "[{{ tag }}]\n{{ message.content | trim }}\n[/{{ tag }}]\n\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}[Answer]\n{% endif %}"
)
END_OF_ANSWER = "[/Answer]"


def recognises_masked_lm(model_type: str) -> Callable[[Config], bool]:
    """Whether a config is of this type and has a masked language model's head."""

    def recognises(config: Config) -> bool:
        classes = config.get("architectures") or [HEADED[0]]
        headed = any(str(name).endswith(HEADED) for name in classes)
        return config.get("model_type") == model_type and headed

    return recognises


def masked_lm_spec(source: Source, family: str, roles: dict[str, str], context: int) -> ModelSpec:
    """The spec of a masked language model.

    `roles` are the usual contents of its mask_token, cls_token, sep_token and pad_token, for
    tokenizer files that do not say. `context` is how many positions it has.

    Raises:
        KeyError: the tokenizer files give no id for one of these.
    """
    config = source.config
    mask, begin, end, pad = (
        _token_id(source, role, roles[role])
        for role in ("mask_token", "cls_token", "sep_token", "pad_token")
    )
    heads = config["num_attention_heads"]
    width = config["hidden_size"] // heads
    tuned = _is_tuned(source)
    return ModelSpec(
        name=source.name,
        family=family,
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        kv=(KVGroup(layers=config["num_hidden_layers"], heads=heads, head_dim=width),),
        attention="full",
        pad_id=pad,
        mask_id=mask,
        end_ids=(pad, end) if tuned else (end,),
        forbidden_ids=(begin,) if tuned else (begin, pad),
        prompt_prefix_ids=(begin,),
        chat_template=CHAT_TEMPLATE if tuned else None,
        context_length=context,
        max_prompt_tokens=context - 1,
        block_length=min(BLOCK_LENGTH, context - 1),
        max_new_tokens=context - 1,
        drop_after_end=not tuned,
        defaults=Decoding(
            policy="quota",
            steps=min(BLOCK_LENGTH, context - 1),
            max_tokens=min(MAX_TOKENS, context - 1),
            stop=(END_OF_ANSWER,) if tuned else (),
        ),
    )


def _is_tuned(source: Source) -> bool:
    end = source.special_tokens.get("eos_token")
    return end is not None and end == source.special_tokens.get("pad_token")


def _token_id(source: Source, role: str, usual: str) -> int:
    """The id that the tokenizer files give, else the config's (`mask_token_id`, ...)."""
    content = source.special_tokens.get(role, usual)
    found = source.special_ids.get(content, source.config.get(f"{role}_id"))
    if found is None:
        raise KeyError(f"id of {content} ({role})")
    return int(found)
