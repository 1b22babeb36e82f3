"""ModelSpec: how a model differs from others, read from its `config.json` without torch."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from raydiff.errors import DecodingError, ModelError, invalid
from raydiff.request import Decoding

Noise = Literal["absorbing"]
Attention = Literal["encoder-block"]
CachePolicy = Literal["none", "encoder-block"]

BUNDLED = {"summarizer": Path(__file__).parent / "models" / "summarizer"}


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """What the engine must know of a model; nothing else asks which family it is."""

    name: str
    """The name or path it was loaded by."""
    family: str
    """The loader that understands its checkpoint, e.g. "bert"."""
    vocab_size: int
    layers: int
    heads: int
    """Key/value heads of a layer."""
    head_dim: int
    hidden_size: int
    attention: Attention = "encoder-block"
    """encoder-block: the prompt attends to itself in both directions; a block attends to
    the prompt, to earlier blocks and, in both directions, to itself."""
    cache: CachePolicy = "encoder-block"
    """Which exact cache the attention pattern allows."""
    noise: Noise = "absorbing"
    pad_id: int
    mask_id: int
    end_ids: tuple[int, ...]
    """Tokens that end a text; the first fills the block after it."""
    forbidden_ids: tuple[int, ...] = ()
    """Tokens never predicted, besides `mask_id` (padding, document start)."""
    prompt_prefix_ids: tuple[int, ...] = ()
    prompt_suffix_ids: tuple[int, ...] = ()
    max_prompt_tokens: int
    """Longest prompt, its prefix and suffix included."""
    block_length: int
    """Positions denoised together, and the largest `Decoding.block_length`."""
    max_new_tokens: int
    target_position: int | None = None
    """Position of the first generated token; `None` continues after the prompt."""
    end_bias: float = 0.0
    """Subtracted from the end tokens' logits, in nats; corrects a model that stops early."""
    end_threshold: float | None = None
    """Confidence at which a run of end tokens at the block's end commits without a step."""
    drop_after_end: bool = False
    """Whether the model was trained to do without the positions after a committed end token;
    then they are neither computed nor attended to."""
    defaults: Decoding

    def cache_bytes_per_position(self, bytes_per_value: int) -> int:
        """Bytes of keys and values that one position of one row takes in the cache."""
        return 2 * self.layers * self.heads * self.head_dim * bytes_per_value

    def resolve(self, decoding: Decoding) -> Decoding:
        """Fill what `decoding` leaves open and check it against the model.

        Raises:
            DecodingError: a value is impossible for this model.
        """
        policy = decoding.policy
        if policy is None:
            policy = _implied_policy(decoding) or self.defaults.policy or "quota"
        block_length = _or(decoding.block_length, self.defaults.block_length, self.block_length)
        filled = replace(
            decoding,
            policy=policy,
            max_tokens=_or(decoding.max_tokens, self.defaults.max_tokens, self.max_new_tokens),
            temperature=_or(decoding.temperature, self.defaults.temperature, 0.0),
            steps=_or(decoding.steps, self._default_steps(policy, block_length)),
            threshold=_or(decoding.threshold, self.defaults.threshold, 0.9)
            if policy == "threshold"
            else None,
            block_length=block_length,
            cache=_or(decoding.cache, self.defaults.cache, "auto"),
        )
        self._check(filled)
        return filled

    def _default_steps(self, policy: str, block_length: int) -> int | None:
        """A shorter block than the model's takes no more steps than it has positions."""
        if policy != "quota":
            return None
        return min(self.defaults.steps or self.block_length, block_length)

    def _check(self, d: Decoding) -> None:
        assert d.max_tokens is not None
        assert d.block_length is not None
        _at_most("max_tokens", d.max_tokens, self.max_new_tokens, self.name)
        _at_most("block_length", d.block_length, self.block_length, self.name)
        if d.policy == "quota":
            assert d.steps is not None
            if d.steps > d.block_length:
                message = invalid(
                    "steps",
                    expected=f"at most block_length ({d.block_length})",
                    got=d.steps,
                    remedy="A step commits at least one position.",
                )
                raise DecodingError(message, param="steps")


def _implied_policy(decoding: Decoding) -> Literal["quota", "threshold"] | None:
    if decoding.threshold is not None:
        return "threshold"
    return "quota" if decoding.steps is not None else None


def _or(*values: Any) -> Any:
    return next((v for v in values if v is not None), None)


def _at_most(name: str, value: int, limit: int, model: str) -> None:
    if value > limit:
        message = invalid(name, expected=f"at most {limit} for model {model!r}", got=value)
        raise DecodingError(message, param=name)


def model_path(path_or_name: str | Path) -> Path:
    """The checkpoint directory behind a bundled name or a path.

    Raises:
        ModelError: there is no such bundled model and no such directory.
    """
    bundled = BUNDLED.get(str(path_or_name))
    path = bundled if bundled is not None else Path(path_or_name)
    if not (path / "config.json").is_file():
        names = ", ".join(sorted(BUNDLED))
        raise ModelError(
            invalid(
                "model",
                expected=f"a bundled name ({names}) or a directory with config.json",
                got=str(path_or_name),
            )
        )
    return path


def load_spec(path_or_name: str | Path) -> ModelSpec:
    """Read a checkpoint's `config.json` into a ModelSpec.

    Raises:
        ModelError: the directory is missing, its config is unreadable or its family unknown.
    """
    path = model_path(path_or_name)
    config = _read_config(path)
    family = config.get("model_type")
    if family != "bert" or not isinstance(config.get("raydiff"), dict):
        raise ModelError(
            invalid(
                f"{path}/config.json",
                expected="model_type 'bert' with a 'raydiff' section",
                got=family,
                remedy="Train one with `raydiff train summarizer`.",
            )
        )
    try:
        return _bert_spec(str(path_or_name), config, config["raydiff"])
    except (KeyError, TypeError, DecodingError) as error:
        raise ModelError(f"{path}/config.json: cannot be read as a model: {error!r}.") from error


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}/config.json: expected a JSON object: {error}.") from error
    if not isinstance(config, dict):
        raise ModelError(invalid(f"{path}/config.json", expected="a JSON object", got=config))
    return config


def _bert_spec(name: str, config: dict[str, Any], section: dict[str, Any]) -> ModelSpec:
    return ModelSpec(
        name=name,
        family="bert",
        vocab_size=config["vocab_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        head_dim=config["hidden_size"] // config["num_attention_heads"],
        hidden_size=config["hidden_size"],
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
