"""Decoding: how to denoise, chosen per request. One table says which setting belongs to which
policy; no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from raydiff.errors import DecodingError, invalid

Policy = Literal[
    "quota",
    "threshold",
    "factor",
    "entropy_bound",
    "hierarchical",
    "credit",
    "ancestral",
    "first_hitting",
    "remask",
    "edit",
    "flow",
    "speculative",
    "solver",
]
CacheMode = Literal["auto", "none", "prefix", "dual"]
Score = Literal["confidence", "margin", "entropy", "random"]
Schedule = Literal["linear", "timestep"]
Remask = Literal["cap", "rescale", "conf", "loop"]
Solver = Literal["ddpm", "ddim", "dpm++", "plms", "euler", "heun"]
Rounding = Literal["euclidean", "cosine", "softmax", "gumbel"]

MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 1024
MAX_SEED = 2**63 - 1

_STEPS = frozenset({"steps"})
_RANKED = frozenset({"steps", "score", "score_temperature"})

POLICY_SETTINGS: dict[str, frozenset[str]] = {
    "quota": _RANKED | {"schedule"},
    "threshold": _STEPS | {"threshold"},
    "factor": _STEPS | {"factor"},
    "entropy_bound": _STEPS | {"entropy_bound", "stop_entropy"},
    "hierarchical": _STEPS | {"threshold", "low_threshold"},
    "credit": _STEPS | {"threshold"},
    "ancestral": _STEPS | {"stop_entropy"},
    "first_hitting": frozenset(),
    "remask": _STEPS | {"remask", "eta", "loop_from", "loop_to", "loop_alpha"},
    "edit": _STEPS | {"threshold", "edit_threshold", "max_edits"},
    "flow": _STEPS | {"stop_entropy"},
    "speculative": frozenset(),
    "solver": _STEPS | {"solver", "solver_order", "eta", "rounding", "clamp", "stop_entropy"},
}
"""The settings that each policy reads, besides those that all read."""

POLICY_NOISE: dict[str, frozenset[str]] = {
    **{policy: frozenset({"absorbing"}) for policy in POLICY_SETTINGS},
    "entropy_bound": frozenset({"absorbing", "uniform"}),
    "ancestral": frozenset({"absorbing", "uniform"}),
    "flow": frozenset({"absorbing", "uniform"}),
    "solver": frozenset({"gaussian"}),
}
"""The kinds of noise that each policy can undo."""

_POLICY_OWN = frozenset().union(*POLICY_SETTINGS.values())


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What values a setting of `Decoding` takes, and its help text."""

    help: str
    of: tuple[str, ...] = ()
    kind: type = str
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    """`low` itself is not allowed."""

    def expected(self) -> str:
        """The values, in words."""
        if self.of:
            return f"one of {', '.join(self.of)}"
        if self.kind is bool:
            return "true or false"
        noun = "an integer" if self.kind is int else "a number"
        if self.high == math.inf:
            least = f"above {self.low:g}" if self.open_low else f"of at least {self.low:g}"
            return noun if self.low == -math.inf else f"{noun} {least}"
        bracket = "(" if self.open_low else "["
        high = str(int(self.high)) if self.kind is int else f"{self.high:g}"
        return f"{noun} in {bracket}{self.low:g}, {high}]"

    def allows(self, value: object) -> bool:
        """Whether `value` is one of them."""
        if self.of:
            return isinstance(value, str) and value in self.of
        if self.kind is bool:
            return isinstance(value, bool)
        types: tuple[type, ...] = (int,) if self.kind is int else (int, float)
        if not isinstance(value, types) or isinstance(value, bool):
            return False
        assert isinstance(value, int | float)
        above = value > self.low if self.open_low else value >= self.low
        return above and value <= self.high and math.isfinite(value)


Metadata = dict[str, Choice]


def _choice(*values: str, help: str) -> Metadata:
    return {"choice": Choice(of=values, help=help)}


def _integer(low: int, high: float = math.inf, *, help: str) -> Metadata:
    return {"choice": Choice(kind=int, low=low, high=high, help=help)}


def _number(low: float, high: float = math.inf, *, open_low: bool = False, help: str) -> Metadata:
    return {"choice": Choice(kind=float, low=low, high=high, open_low=open_low, help=help)}


def _switch(help: str) -> Metadata:
    return {"choice": Choice(kind=bool, help=help)}


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How to denoise. `None` means the model's own default (`ModelSpec.resolve`).

    Each field's help text says what it does; `raydiff/models/README.md` maps published decoders
    to these settings.

    Raises:
        DecodingError: a value is impossible whatever the model.
    """

    max_tokens: int | None = field(
        default=None, metadata=_integer(1, help="most tokens to generate")
    )
    min_tokens: int = field(
        default=0,
        metadata=_integer(
            0, help="no end token, and no end of a stop string, within this many tokens"
        ),
    )
    ignore_eos: bool = field(
        default=False, metadata=_switch("no end token: write on to max_tokens, or to a stop string")
    )
    temperature: float | None = field(
        default=None,
        metadata=_number(0, 100, help="0 takes the most likely token, above 0 samples"),
    )
    top_p: float = field(
        default=1.0,
        metadata=_number(
            0, 1, open_low=True, help="sample from the smallest set with this probability"
        ),
    )
    top_k: int = field(
        default=0, metadata=_integer(0, help="sample from this many most likely tokens, 0 for all")
    )
    seed: int | None = field(
        default=None, metadata=_integer(0, MAX_SEED, help="seed of the row's own random generator")
    )
    stop: tuple[str, ...] = ()
    """Text is cut before the first of these strings to be complete."""
    policy: Policy | None = field(
        default=None,
        metadata=_choice(
            *POLICY_SETTINGS, help="which positions a step commits, or how it revises them"
        ),
    )
    steps: int | None = field(
        default=None,
        metadata=_integer(
            1, help="denoising steps per block; a bound where the policy commits by confidence"
        ),
    )
    score: Score | None = field(
        default=None,
        metadata=_choice("confidence", "margin", "entropy", "random", help="what ranks positions"),
    )
    score_temperature: float | None = field(
        default=None,
        metadata=_number(
            0, 100, help="randomness of that ranking: 0 is strict, above 0 samples by softmax"
        ),
    )
    schedule: Schedule | None = field(
        default=None,
        metadata=_choice(
            "linear", "timestep", help="share of positions per step: equal, or by Dream's timesteps"
        ),
    )
    threshold: float | None = field(
        default=None, metadata=_number(0, 1, help="confidence from which a position commits")
    )
    factor: float | None = field(
        default=None,
        metadata=_number(
            0,
            open_low=True,
            help="Fast-dLLM's factor: the larger, the more positions commit at once",
        ),
    )
    entropy_bound: float | None = field(
        default=None,
        metadata=_number(0, help="summed entropy in nats of the positions accepted together"),
    )
    low_threshold: float | None = field(
        default=None,
        metadata=_number(0, 1, help="confidence from which the best of each open run commits"),
    )
    edit_threshold: float | None = field(
        default=None,
        metadata=_number(0, 1, help="confidence from which another token replaces a committed one"),
    )
    max_edits: int | None = field(
        default=None, metadata=_integer(0, help="steps spent on editing once a block is full")
    )
    remask: Remask | None = field(
        default=None,
        metadata=_choice(
            "cap",
            "rescale",
            "conf",
            "loop",
            help="ReMDM's rule for hiding committed positions again",
        ),
    )
    eta: float | None = field(
        default=None,
        metadata=_number(
            0, 1, help="strength of remasking (conf has none of its own), or of DDIM's noise"
        ),
    )
    loop_from: float | None = field(
        default=None, metadata=_number(0, 1, help="time at which ReMDM's loop begins")
    )
    loop_to: float | None = field(
        default=None, metadata=_number(0, 1, help="time at which ReMDM's loop ends")
    )
    loop_alpha: float | None = field(
        default=None, metadata=_number(0, 1, help="share of tokens kept during ReMDM's loop")
    )
    guidance: float | None = field(
        default=None,
        metadata=_number(
            0, 100, help="classifier-free guidance scale; 0 is off, above it forwards double"
        ),
    )
    stable_steps: int | None = field(
        default=None,
        metadata=_integer(
            0, help="a position commits once its best token was the same for this many more steps"
        ),
    )
    stop_entropy: float | None = field(
        default=None,
        metadata=_number(
            0, help="denoising ends when the best tokens are stable and mean entropy is below this"
        ),
    )
    solver: Solver | None = field(
        default=None,
        metadata=_choice(
            "ddpm", "ddim", "dpm++", "plms", "euler", "heun", help="solver on embeddings"
        ),
    )
    solver_order: int | None = field(default=None, metadata=_integer(1, 3, help="order of dpm++"))
    rounding: Rounding | None = field(
        default=None,
        metadata=_choice(
            "euclidean", "cosine", "softmax", "gumbel", help="how embeddings become tokens"
        ),
    )
    clamp: bool | None = field(
        default=None, metadata=_switch("round the predicted embeddings at every step")
    )
    block_length: int | None = field(
        default=None, metadata=_integer(1, help="positions that commit together, left to right")
    )
    cache: CacheMode | None = field(
        default=None,
        metadata=_choice(
            "auto",
            "none",
            "prefix",
            "dual",
            help="auto: the exact cache if there is one; none; prefix and dual are approximate",
        ),
    )
    refresh_steps: int | None = field(
        default=None,
        metadata=_integer(1, help="steps after which an approximate cache is computed afresh"),
    )
    window: int | None = field(
        default=None,
        metadata=_integer(
            0, help="neighbours on either side of the block that the dual cache recomputes too"
        ),
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        for name, choice in CHOICES.items():
            value = getattr(self, name)
            if (value is not None or name in _NEVER_NONE) and not choice.allows(value):
                require(False, name, choice.expected(), value)
        if self.max_tokens is not None:
            ok = self.min_tokens <= self.max_tokens
            require(ok, "min_tokens", f"at most max_tokens ({self.max_tokens})", self.min_tokens)
        if self.loop_from is not None and self.loop_to is not None:
            ok = self.loop_to <= self.loop_from
            require(ok, "loop_to", f"at most loop_from ({self.loop_from:g})", self.loop_to)
        if self.policy is not None:
            self._check_belongs(self.policy)

    def _check_belongs(self, policy: str) -> None:
        for name in sorted(_POLICY_OWN - POLICY_SETTINGS[policy]):
            value = getattr(self, name)
            remedy = f"Leave it out, or set policy to one of {', '.join(policies_of(name))}."
            require(value is None, name, f"no {name} under policy {policy!r}", value, remedy)

    def given(self) -> dict[str, Any]:
        """The settings that are not `None`."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Decoding:
        """Build from loosely typed settings; unknown names are refused, `None` means absent."""
        known = {f.name for f in fields(cls)}
        for name in values:
            require(name in known, name, f"one of {', '.join(sorted(known))}", name)
        return cls(**{name: value for name, value in values.items() if value is not None})


CHOICES: dict[str, Choice] = {
    f.name: f.metadata["choice"] for f in fields(Decoding) if "choice" in f.metadata
}
"""What values each setting takes; all but `stop`."""
_NEVER_NONE = frozenset(f.name for f in fields(Decoding) if f.default is not None)

POLICIES: tuple[str, ...] = tuple(POLICY_SETTINGS)
CACHE_MODES: tuple[str, ...] = CHOICES["cache"].of


def policies_of(setting: str) -> list[str]:
    """The policies that read a setting."""
    return [policy for policy, names in POLICY_SETTINGS.items() if setting in names]


def require(ok: bool, name: str, expected: str, got: object, remedy: str = "") -> None:
    """Refuse a decoding value unless `ok`.

    Raises:
        DecodingError: it is not.
    """
    if not ok:
        raise DecodingError(invalid(name, expected=expected, got=got, remedy=remedy), param=name)


def _stop_strings(stop: object) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else stop
    ok = isinstance(strings, tuple | list) and all(isinstance(s, str) and s for s in strings)
    require(ok, "stop", "a non-empty string or a list of them", stop)
    assert isinstance(strings, tuple | list)
    require(len(strings) <= MAX_STOP_STRINGS, "stop", f"at most {MAX_STOP_STRINGS}", len(strings))
    longest = max(map(len, strings), default=0)
    expected = f"strings of at most {MAX_STOP_CHARACTERS} characters"
    require(longest <= MAX_STOP_CHARACTERS, "stop", expected, longest)
    return tuple(strings)
