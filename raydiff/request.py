"""What travels between callers and the engine: plain frozen records, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from raydiff.errors import DecodingError, invalid

Policy = Literal["quota", "threshold"]
CacheMode = Literal["auto", "none"]
Lane = Literal["interactive", "batch"]
FinishReason = Literal["stop", "length", "cancelled", "error"]

POLICIES: tuple[str, ...] = ("quota", "threshold")
CACHE_MODES: tuple[str, ...] = ("auto", "none")
MAX_STOP_STRINGS = 16
MAX_SEED = 2**63 - 1


def _require(ok: bool, name: str, expected: str, got: object, remedy: str = "") -> None:
    if not ok:
        raise DecodingError(invalid(name, expected=expected, got=got, remedy=remedy), param=name)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How to denoise. `None` means the model's own default (`ModelSpec.resolve`).

    Raises:
        DecodingError: a value is impossible whatever the model.
    """

    max_tokens: int | None = None
    """Most tokens to generate; need not be a multiple of the block length."""
    min_tokens: int = 0
    """The end token is not predicted before this many tokens."""
    ignore_eos: bool = False
    """Never predict the end token: generate exactly `max_tokens`."""
    temperature: float | None = None
    """0 takes the most likely token; above 0 samples, scaled by this."""
    top_p: float = 1.0
    """Sample from the smallest set of tokens whose probability reaches this."""
    top_k: int = 0
    """Sample from this many most likely tokens; 0 means all."""
    seed: int | None = None
    """Seed of the row's own generator; `None` draws one at submission."""
    stop: tuple[str, ...] = ()
    """Text is cut before the first of these strings."""
    policy: Policy | None = None
    """`quota` commits block_length/steps positions a step, the most confident first;
    `threshold` commits every position at least that confident, and always one."""
    steps: int | None = None
    """Denoising steps per block. Under `threshold`, a bound: each step commits at least
    the quota that finishes in time."""
    threshold: float | None = None
    """Confidence in [0, 1] from which `threshold` commits a position."""
    block_length: int | None = None
    """Positions denoised together; at most the model's own block length."""
    cache: CacheMode | None = None
    """`auto` is the model's exact cache, `none` recomputes everything at each step."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        self._check_lengths()
        self._check_sampling()
        self._check_commit_rule()

    def _check_lengths(self) -> None:
        for name in ("max_tokens", "block_length"):
            value = getattr(self, name)
            ok = value is None or (_is_int(value) and value >= 1)
            _require(ok, name, "an integer of at least 1", value)
        ok = _is_int(self.min_tokens) and self.min_tokens >= 0
        _require(ok, "min_tokens", "an integer of at least 0", self.min_tokens)
        if self.max_tokens is not None:
            _require(
                self.min_tokens <= self.max_tokens,
                "min_tokens",
                f"at most max_tokens ({self.max_tokens})",
                self.min_tokens,
            )
        _require(isinstance(self.ignore_eos, bool), "ignore_eos", "true or false", self.ignore_eos)

    def _check_sampling(self) -> None:
        t = self.temperature
        ok = t is None or (_is_number(t) and 0.0 <= t <= 100.0)
        _require(ok, "temperature", "a number in [0, 100]", t)
        ok = _is_number(self.top_p) and 0.0 < self.top_p <= 1.0
        _require(ok, "top_p", "a number in (0, 1]", self.top_p)
        ok = _is_int(self.top_k) and self.top_k >= 0
        _require(ok, "top_k", "an integer of at least 0 (0 means all)", self.top_k)
        ok = self.seed is None or (_is_int(self.seed) and 0 <= self.seed <= MAX_SEED)
        _require(ok, "seed", f"an integer in [0, {MAX_SEED}]", self.seed)

    def _check_commit_rule(self) -> None:
        known = self.policy is None or self.policy in POLICIES
        _require(known, "policy", f"one of {', '.join(POLICIES)}", self.policy)
        ok = self.steps is None or (_is_int(self.steps) and self.steps >= 1)
        _require(ok, "steps", "an integer of at least 1", self.steps)
        h = self.threshold
        ok = h is None or (_is_number(h) and 0.0 <= h <= 1.0)
        _require(ok, "threshold", "a number in [0, 1]", h)
        _require(
            not (self.policy == "quota" and h is not None),
            "threshold",
            "no threshold under policy 'quota'",
            h,
            "Leave policy out or set it to 'threshold'.",
        )
        known = self.cache is None or self.cache in CACHE_MODES
        _require(known, "cache", f"one of {', '.join(CACHE_MODES)}", self.cache)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Decoding:
        """Build from loosely typed settings; unknown names are refused, `None` means absent."""
        known = {f.name for f in fields(cls)}
        for name in values:
            _require(name in known, name, f"one of {', '.join(sorted(known))}", name)
        return cls(**{name: value for name, value in values.items() if value is not None})


def _stop_strings(stop: object) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else stop
    ok = isinstance(strings, tuple | list) and all(isinstance(s, str) and s for s in strings)
    _require(ok, "stop", "a non-empty string or a list of them", stop)
    assert isinstance(strings, tuple | list)
    _require(len(strings) <= MAX_STOP_STRINGS, "stop", f"at most {MAX_STOP_STRINGS}", len(strings))
    return tuple(strings)


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """One prompt to continue or summarise, tokenised, with resolved decoding parameters."""

    request_id: str
    """Stable identity, chosen by the caller; unique among requests in flight."""
    prompt_ids: tuple[int, ...]
    """Token ids of the whole prompt, special tokens included."""
    decoding: Decoding
    lane: Lane = "interactive"
    """Interactive requests are admitted before batch ones."""
    pinned: tuple[tuple[int, int], ...] = ()
    """(offset into the generated text, token id) pairs that are given, never changed."""
    stream: bool = False
    """Emit text as it commits; otherwise all of it comes with the completion."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a completion cost. Tokens after the end token are never counted."""

    prompt_tokens: int
    completion_tokens: int
    forwards: int
    """Denoising forwards this row took part in (encoding passes not counted)."""

    @property
    def tokens_per_forward(self) -> float:
        return self.completion_tokens / self.forwards if self.forwards else 0.0


@dataclass(frozen=True, kw_only=True)
class Completion:
    """The final state of one request."""

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    error: str | None = None
    """Why, when `finish_reason` is "error"."""
    queue_s: float = 0.0
    """Seconds between submission and the first forward."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that became final: committed text, or the end of a request."""

    request_id: str
    text: str = ""
    """Newly committed text; the concatenation over a request's events is its text."""
    completion: Completion | None = None
    """Set on the last event of a request."""


StepKind = Literal["encode", "denoise"]


@dataclass(frozen=True, kw_only=True)
class StepStats:
    """One forward, as the engine reports it to a Recorder."""

    kind: StepKind
    rows: int
    """Rows that took part."""
    positions: int
    """Token positions computed."""
    forward_s: float
    """Seconds from planning the forward to its tokens being known."""
    committed_tokens: int
    """Positions committed by this forward, end tokens included."""
    queue_depth: Mapping[str, int] = field(default_factory=dict)
    """Requests waiting for admission, by lane."""
    active_rows: int = 0
    """Requests admitted and not finished."""


@dataclass(frozen=True, kw_only=True)
class RequestStats:
    """One finished request, as the engine reports it to a Recorder."""

    outcome: FinishReason
    lane: Lane
    usage: Usage
    queue_s: float
    """Seconds from submission to the first forward."""
    first_commit_s: float | None
    """Seconds from submission to the first committed text; `None` if there was none."""
    total_s: float
    """Seconds from submission to the end."""
