"""ModelSpec: how a model differs from others. Nothing else asks which family it is; no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from raydiff.decoding import POLICY_NOISE, POLICY_SETTINGS, Decoding, policies_of, require

Noise = Literal["absorbing", "uniform", "gaussian"]
Attention = Literal["full", "encoder-block", "block-causal", "causal-encoder"]
CachePolicy = Literal["none", "exact"]
Prediction = Literal["x0", "epsilon", "velocity"]
NoiseSchedule = Literal["sqrt", "cosine", "linear", "rectified"]

SETTING_DEFAULTS: dict[str, Any] = {
    "score": "confidence",
    "score_temperature": 0.0,
    "schedule": "linear",
    "threshold": 0.9,
    "factor": 1.0,
    "entropy_bound": 0.1,
    "low_threshold": 0.4,
    "edit_threshold": 0.9,
    "max_edits": 16,
    "remask": "cap",
    "loop_from": 0.55,
    "loop_to": 0.05,
    "loop_alpha": 0.9,
    "solver": "ddim",
    "solver_order": 2,
    "rounding": "euclidean",
    "clamp": False,
}
"""What a policy's own settings are where neither the request nor the model says."""

_ETA = {"remask": 0.05, "solver": 0.0}
_TIMED = ("ancestral", "remask", "flow", "solver")
"""Policies whose every step belongs to a noise level, so that `steps` is never open."""
_POLICY_OWN = frozenset().union(*POLICY_SETTINGS.values())
_IMPLYING = _POLICY_OWN - {"steps", "stop_entropy"}
"""Settings that name a policy by being given."""


@dataclass(frozen=True, kw_only=True)
class KVGroup:
    """Layers whose keys and values have one shape."""

    layers: int
    heads: int
    """Key/value heads of a layer."""
    head_dim: int

    def bytes_per_position(self, bytes_per_value: int) -> int:
        """Bytes of keys and values that one position of one row takes in these layers."""
        return 2 * self.layers * self.heads * self.head_dim * bytes_per_value


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """What the engine must know of a model; nothing else asks which family it is."""

    name: str
    """The name or path it was loaded by."""
    family: str
    """The family that understands its checkpoint (`raydiff.families`), e.g. "llada"."""
    vocab_size: int
    hidden_size: int
    kv: tuple[KVGroup, ...]
    """The shapes of a row's cache, one group after another."""
    attention: Attention = "encoder-block"
    """full: every position attends to every other, those still to be denoised included.
    encoder-block: the prompt attends to itself in both directions; a block attends to the
    prompt, to earlier blocks and, in both directions, to itself.
    block-causal: blocks of `block_length`, counted from the prompt's first token, attend to
    earlier ones and, in both directions, to themselves.
    causal-encoder: prompt and finished blocks are encoded causally; a block attends to them and,
    in both directions, to itself."""
    noise: Noise = "absorbing"
    prediction: Prediction = "x0"
    """What the network predicts of noised embeddings; of tokens it is always x0."""
    noise_schedule: NoiseSchedule = "sqrt"
    """How noise on embeddings grows with time (`raydiff.diffusion.gaussian`)."""
    latent_size: int = 0
    """Width of the embeddings that are noised; 0 where tokens are."""
    first_time: float = 1.0
    """Time in (0, 1] at which the denoising of embeddings begins."""
    shift: bool = False
    """Whether the token at p is predicted at p - 1, as in autoregressive models."""
    self_conditioning: bool = False
    """Whether a forward also takes the expected embeddings of the one before."""
    pad_id: int
    mask_id: int
    """The absorbing token; for other noises any id that is never predicted, or `pad_id`."""
    end_ids: tuple[int, ...]
    """Tokens that end a text; the first fills the block after it."""
    forbidden_ids: tuple[int, ...] = ()
    """Tokens never predicted, besides `mask_id` (padding, document start)."""
    prompt_prefix_ids: tuple[int, ...] = ()
    prompt_suffix_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    """The family's own chat template, for checkpoints that bring none."""
    context_length: int | None = None
    """Most positions of prompt and generated text together; `None`: no bound but those below."""
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
    commit_first: bool = False
    """Whether a block's first token, which `shift` predicts from finished text alone, commits in
    the block's first step (Fast-dLLM v2)."""
    temperature_schedule: tuple[float, float] | None = None
    """Temperature of a block's first step, and the one it falls towards in equal steps, where the
    request gives none (`temperature_at`)."""
    limited_to: tuple[str, ...] = ()
    """The policies it knows, where those are not all that undo its noise."""
    defaults: Decoding

    def __post_init__(self) -> None:
        if not self.end_ids:
            raise ValueError("end_ids: expected at least one token id, got none")
        around = (*self.prompt_prefix_ids, *self.prompt_suffix_ids)
        for name, ids in {
            "pad_id": (self.pad_id,),
            "mask_id": (self.mask_id,),
            "end_ids": self.end_ids,
            "forbidden_ids": self.forbidden_ids,
            "prompt ids": around,
        }.items():
            wrong = [i for i in ids if not (isinstance(i, int) and 0 <= i < self.vocab_size)]
            if wrong:
                raise ValueError(f"{name}: expected ids in [0, {self.vocab_size}), got {wrong}")
        for name in ("max_prompt_tokens", "block_length", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")

    @property
    def cache(self) -> CachePolicy:
        """Whether the attention pattern allows an exact cache."""
        return "none" if self.attention == "full" else "exact"

    def prompt_limit(self, max_tokens: int) -> int:
        """Longest prompt, in tokens, that leaves room for `max_tokens` more."""
        if self.context_length is None:
            return self.max_prompt_tokens
        return min(self.max_prompt_tokens, self.context_length - max_tokens)

    def cache_bytes_per_position(self, bytes_per_value: int) -> int:
        """Bytes of keys and values that one position of one row takes in the cache."""
        return sum(group.bytes_per_position(bytes_per_value) for group in self.kv)

    def policies(self) -> tuple[str, ...]:
        """The policies that undo this model's noise."""
        speculates = self.attention == "block-causal"
        return tuple(
            policy
            for policy, noises in POLICY_NOISE.items()
            if self.noise in noises
            and (policy != "speculative" or speculates)
            and policy in (self.limited_to or POLICY_NOISE)
        )

    def resolve(self, decoding: Decoding) -> Decoding:
        """Fill what `decoding` leaves open and check it against the model.

        Raises:
            DecodingError: a value is impossible for this model.
        """
        return _resolved(self, decoding)

    def _resolve(self, decoding: Decoding) -> Decoding:
        policy = decoding.policy or self._implied_policy(decoding) or self._default_policy()
        known = ", ".join(self.policies())
        require(policy in self.policies(), "policy", f"one of {known} for {self.name!r}", policy)
        self._check_read(decoding, policy)
        defaults = self.defaults if policy == self._default_policy() else Decoding()
        # a draft is worth verifying at its longest
        part = None if policy == "speculative" else self.defaults.block_length
        block_length = _or(decoding.block_length, part, self.block_length)
        max_tokens = _or(decoding.max_tokens, self.defaults.max_tokens, self.max_new_tokens)
        if self.attention == "full" and decoding.block_length is None:
            block_length = min(block_length, max_tokens)
        filled: dict[str, Any] = {
            "policy": policy,
            "max_tokens": max_tokens,
            "temperature": self._temperature(decoding, policy),
            "block_length": block_length,
            "steps": _or(decoding.steps, self._default_steps(policy, block_length)),
            "cache": _or(decoding.cache, self._default_cache(decoding)),
            "stop": decoding.stop or self.defaults.stop,
        }
        for name in POLICY_SETTINGS[policy] - {"steps"}:
            own = _ETA.get(policy) if name == "eta" else SETTING_DEFAULTS.get(name)
            filled[name] = _or(getattr(decoding, name), getattr(defaults, name), own)
        resolved = replace(decoding, **filled)
        self._check(resolved)
        return resolved

    def temperature_at(self, decoding: Decoding, step: int) -> float:
        """The temperature of forward `step` (from 0) of a block, under resolved `decoding`.

        A schedule (first, last) over N steps gives last + (first - last) * (N - step) / N, as
        transformers' linear schedule for DiffusionGemma does.
        """
        if decoding.temperature is not None:
            return decoding.temperature
        assert self.temperature_schedule is not None
        assert decoding.steps is not None
        first, last = self.temperature_schedule
        return last + (first - last) * (decoding.steps - step) / decoding.steps

    def _temperature(self, decoding: Decoding, policy: str) -> float | None:
        """`None` leaves it to the schedule."""
        if policy == "speculative":
            return decoding.temperature or 0.0
        usual = _or(decoding.temperature, self.defaults.temperature)
        return usual if usual is not None or self.temperature_schedule else 0.0

    def _default_policy(self) -> str:
        usual = {"absorbing": "quota", "uniform": "entropy_bound", "gaussian": "solver"}
        return self.defaults.policy or usual[self.noise]

    def _implied_policy(self, decoding: Decoding) -> str | None:
        """The first policy that reads every policy setting given, if any is given."""
        shared = {name for name in decoding.given() if name in _IMPLYING}
        if not shared:
            return "quota" if decoding.steps is not None and self.noise == "absorbing" else None
        default = self._default_policy()
        order = [default, *(p for p in self.policies() if p != default)]
        return next((p for p in order if shared <= POLICY_SETTINGS[p]), None)

    def _default_steps(self, policy: str, block_length: int) -> int | None:
        """A shorter block than the model's takes no more steps than it has positions; a policy
        that commits by confidence is bounded only where the model says so of it."""
        if self.noise == "absorbing" and policy in ("quota", *_TIMED):
            return min(self.defaults.steps or self.block_length, block_length)
        if self.noise != "absorbing":
            return self.defaults.steps or block_length
        return self.defaults.steps if policy == self._default_policy() else None

    def _default_cache(self, decoding: Decoding) -> str:
        return "none" if decoding.guidance else (self.defaults.cache or "auto")

    def _check_read(self, decoding: Decoding, policy: str) -> None:
        """Refuse a setting that the policy does not read, with the policies here that do."""
        given = decoding.given()
        for name in sorted(_POLICY_OWN & given.keys() - POLICY_SETTINGS[policy]):
            readers = [p for p in policies_of(name) if p in self.policies()]
            other = f", or set policy to one of {', '.join(readers)}" if readers else ""
            remedy = f"Leave it out{other}."
            require(False, name, f"no {name} under policy {policy!r}", given[name], remedy)

    def _check(self, d: Decoding) -> None:
        assert d.max_tokens is not None
        assert d.block_length is not None
        self._at_most("max_tokens", d.max_tokens, self.max_new_tokens)
        self._at_most("block_length", d.block_length, self.block_length)
        if d.policy == "quota" and d.schedule == "linear":
            assert d.steps is not None
            remedy = "A step commits at least one position."
            expected = f"at most block_length ({d.block_length})"
            require(d.steps <= d.block_length, "steps", expected, d.steps, remedy)
        if self.attention == "block-causal":
            divides = self.block_length % d.block_length == 0
            expected = f"a divisor of the model's block length ({self.block_length})"
            require(divides, "block_length", expected, d.block_length)
        if d.policy == "speculative":
            for name in ("temperature", "guidance", "stable_steps"):
                value = getattr(d, name)
                require(not value, name, "0 under policy 'speculative', which is greedy", value)
        self._check_cache(d)

    def _check_cache(self, d: Decoding) -> None:
        approximate = d.cache in ("prefix", "dual")
        usable = self.attention == "full" and self.noise == "absorbing"
        expected = f"auto or none for {self.name!r}"
        remedy = "Approximate caches are for fully bidirectional models of absorbing noise."
        require(usable or not approximate, "cache", expected, d.cache, remedy)
        expected, remedy = "none with guidance", "Guidance also needs the text without its prompt."
        require(not d.guidance or d.cache == "none", "cache", expected, d.cache, remedy)
        guidable = self.noise != "gaussian"
        require(guidable or not d.guidance, "guidance", "0 for noise on embeddings", d.guidance)
        expected = "it only with cache prefix or dual"
        ok = approximate or d.refresh_steps is None
        require(ok, "refresh_steps", expected, d.refresh_steps)
        ok = d.cache == "dual" or d.window is None
        require(ok, "window", "it only with cache dual", d.window)

    def _at_most(self, name: str, value: int, limit: int) -> None:
        require(value <= limit, name, f"at most {limit} for model {self.name!r}", value)


@lru_cache(maxsize=1024)
def _resolved(spec: ModelSpec, decoding: Decoding) -> Decoding:
    """Kept, because gateway, replica and engine each resolve what many requests have in common."""
    return spec._resolve(decoding)


def _or(*values: Any) -> Any:
    return next((v for v in values if v is not None), None)
