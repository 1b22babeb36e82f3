"""What the families of the decoder network have in common: shapes, rotary settings, special
tokens, lengths, Qwen's chat format; no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from raydiff.families.family import Config, Source
from raydiff.spec import KVGroup

_FIXED_ROTATIONS = ("default", "linear", "yarn", "llama3")
"""Kinds of rotary embedding that turn a position the same way whatever the rows beside it."""

_SHAPE = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "rms_norm_eps",
    "max_position_embeddings",
    "tie_word_embeddings",
    "attention_bias",
)


def stock_shape(config: Config) -> dict[str, Any]:
    """The settings that transformers' decoder classes share and the config gives, the rotary ones
    included.

    Raises:
        KeyError: the rotary base is missing.
        ValueError: the rotary embedding depends on the longest sequence, or a window slides.
    """
    if config.get("use_sliding_window"):
        raise ValueError("use_sliding_window: expected false, got true")
    shape = {key: config[key] for key in _SHAPE if config.get(key) is not None}
    return {**shape, "rope_parameters": rope_parameters(config)}


def rope_parameters(config: Config) -> dict[str, Any]:
    """The rotary settings of a config, in the form that transformers 5 takes.

    Raises:
        KeyError: the rotary base is missing.
        ValueError: a rotation that depends on the longest sequence in the batch.
    """
    settings = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    older_name = settings.pop("type", None)
    kind = settings.setdefault("rope_type", older_name or "default")
    if kind not in _FIXED_ROTATIONS:
        expected = ", ".join(_FIXED_ROTATIONS)
        raise ValueError(f"rope_type: expected one of {expected}, got {kind!r}")
    if "rope_theta" not in settings:
        settings["rope_theta"] = config["rope_theta"]
    return settings


def kv_group(config: Config) -> KVGroup:
    """The cache shape of a config in transformers' naming."""
    heads = config["num_attention_heads"]
    return KVGroup(
        layers=config["num_hidden_layers"],
        heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
    )


def mask_id(source: Source, names: Sequence[str], published: int | None) -> int:
    """The absorbing token: the config's `mask_token_id`, else the tokenizer's mask token or one of
    these `names`, else the published id.

    Raises:
        KeyError: nothing says.
        ValueError: the id is outside the vocabulary.
    """
    contents = (source.special_tokens.get("mask_token", ""), *names)
    named = [source.special_ids[name] for name in contents if name in source.special_ids]
    known = [*_ids(source.config.get("mask_token_id")), *named]
    if not known and published is None:
        raise KeyError(f"mask_token_id, or a token {' or '.join(names)} in the tokenizer files")
    return in_vocabulary(source, "mask_token_id", known[0] if known else published)


def end_ids(source: Source, names: Sequence[str], published: Sequence[int]) -> tuple[int, ...]:
    """All tokens that end a text: the config's and its generation config's, the published ones
    where these are silent or have one of them, and the tokenizer's of these `names`.

    Raises:
        KeyError: nothing says.
        ValueError: an id is outside the vocabulary.
    """
    said = [
        *_ids(source.config.get("eos_token_id")),
        *_ids(source.generation.get("eos_token_id")),
    ]
    if not said or any(number in said for number in published):
        size = source.config["vocab_size"]
        said.extend(number for number in published if number < size)
    said.extend(source.special_ids[name] for name in names if name in source.special_ids)
    if not said:
        raise KeyError("eos_token_id")
    return tuple(dict.fromkeys(in_vocabulary(source, "eos_token_id", n) for n in said))


def pad_id(source: Source, end: int) -> int:
    """The padding token; texts are padded with their first end token where nothing says."""
    known = [
        *_ids(source.config.get("pad_token_id")),
        *_ids(source.generation.get("pad_token_id")),
        end,
    ]
    return in_vocabulary(source, "pad_token_id", known[0])


def in_vocabulary(source: Source, name: str, number: int | None) -> int:
    """`number`, refused unless it is an id of the vocabulary.

    Raises:
        ValueError: it is not.
    """
    size = source.config["vocab_size"]
    if number is None or not 0 <= number < size:
        raise ValueError(f"{name}: expected an id below vocab_size ({size}), got {number}")
    return number


def usual_tokens(published: int, context: int) -> int:
    """Tokens to generate where a request does not say: at most half of the context."""
    return max(1, min(published, context // 2))


def qwen_chat(system: str | None = None, thought: bool = False) -> str:
    """Qwen's chat format.

    `system` is said first where the messages bring no system message of their own. With `thought`
    the answer begins after an empty thought.
    """
    opening = ""
    if system is not None:
        opening = (
            "{% if messages[0]['role'] != 'system' %}"
            f"<|im_start|>system\n{system}<|im_end|>\n"
            "{% endif %}"
        )
    answer = "<|im_start|>assistant\n" + ("<think>\n\n</think>\n\n" if thought else "")
    return (
        f"{opening}"
        "{% for message in messages %}"
        "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
        "{% endfor %}"
        f"{{% if add_generation_prompt %}}{answer}{{% endif %}}"
    )


def _ids(value: object) -> Iterator[int]:
    """A setting that may be absent, a number or a list of them."""
    if isinstance(value, int):
        yield value
    elif isinstance(value, list | tuple):
        yield from (int(number) for number in value)
