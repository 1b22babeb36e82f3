"""What a simulated model's name declares: `simulated:ROWSxFORWARDS=SECONDSs[,key=value...]`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from raydiff.errors import ModelError, invalid

PREFIX = "simulated:"
EXAMPLE = f"{PREFIX}32x16=0.5s"

_POINT = re.compile(r"(\d+)x(\d+)=(.+)")


def _key(unit: str, help: str, default: Any) -> Any:
    return field(default=default, metadata={"unit": unit, "help": help})


@dataclass(frozen=True, kw_only=True)
class SimulatedModel:
    """A roofline through one declared point, and the shape of the model that has it.

    A forward that computes P positions takes max(floor, slope * P): it is bound by memory below
    the ridge and by arithmetic above it.
    """

    name: str
    """The name that declared it."""
    rows: int
    """Rows of the declared point: so many, each of a whole block, ..."""
    forwards: int
    """... through so many denoising forwards ..."""
    seconds: float
    """... take so long. A block takes so many steps unless a request says otherwise."""
    ridge: int = _key("rows", "rows of a whole block up to which a forward takes no longer", 0)
    """0 is `rows`: the declared point lies on the ridge."""
    encode: float = _key("s", "seconds that encoding prompts takes at least", 0.0)
    """Beyond that, prompts cost what arithmetic their positions take."""
    block: int = _key("", "positions of a block", 0)
    """0 is 32, or `forwards` where that is more."""
    tokens: float = _key("", "tokens of a text on average, by chance; 0 fills max_tokens", 0.0)
    context: int = _key("", "longest prompt", 8192)
    longest: int = _key("", "largest max_tokens", 1024)
    load: float = _key("s", "seconds that loading takes", 0.0)
    stall_after: int = _key("", "forwards after which one never ends; 0 for never", 0)
    fail_after: int = _key("", "forwards after which one fails; 0 for never", 0)

    @property
    def block_length(self) -> int:
        return self.block or max(32, self.forwards)

    @property
    def floor_s(self) -> float:
        """Seconds of a denoising forward, however few positions it has."""
        ridge = self.ridge or self.rows
        return self.seconds / self.forwards * min(1.0, ridge / self.rows)

    @property
    def slope_s(self) -> float:
        """Seconds of arithmetic for one position."""
        ridge = self.ridge or self.rows
        return self.floor_s / (ridge * self.block_length)

    def denoise_s(self, positions: int) -> float:
        """Seconds of a denoising forward over so many positions."""
        return max(self.floor_s, self.slope_s * positions)

    def encode_s(self, positions: int) -> float:
        """Seconds of encoding so many positions."""
        return max(self.encode, self.slope_s * positions)


_KEYS = {f.name: f for f in fields(SimulatedModel) if f.metadata}
_FLOATS = frozenset({"encode", "tokens", "load"})


def is_simulated(path_or_name: str | Path) -> bool:
    """Whether a name asks for the simulated denoiser."""
    return str(path_or_name).startswith(PREFIX)


def simulated_model(path_or_name: str | Path) -> SimulatedModel:
    """What a name declares.

    Raises:
        ModelError: it is malformed; the message says where, and what may stand there.
    """
    name = str(path_or_name)
    point, *pairs = name.removeprefix(PREFIX).split(",")
    values = _point(name, point)
    for pair in pairs:
        key, _, text = pair.partition("=")
        if key not in _KEYS:
            raise _malformed(name, f"one of {_known()} with a value", pair)
        if key in values:
            raise _malformed(name, f"{key} once", pair)
        values[key] = _number(name, key, text)
    model = SimulatedModel(name=name, **values)
    _check(model)
    return model


def _point(name: str, text: str) -> dict[str, Any]:
    match = _POINT.fullmatch(text)
    if match is None:
        raise _malformed(name, f"ROWSxFORWARDS=SECONDSs first, as in {EXAMPLE}", text)
    rows, forwards, seconds = int(match[1]), int(match[2]), _seconds(match[3])
    if seconds is None or not (rows and forwards):
        raise _malformed(name, "rows and forwards above 0, and seconds such as 0.5s", text)
    return {"rows": rows, "forwards": forwards, "seconds": seconds}


def _number(name: str, key: str, text: str) -> float:
    unit = _KEYS[key].metadata["unit"]
    number = _seconds(text) if unit == "s" else _plain(text, whole=key not in _FLOATS)
    if number is None:
        kind = "seconds such as 0.5s" if unit == "s" else "a number of at least 0"
        raise _malformed(name, f"{key}= with {kind}", text)
    return number


def _seconds(text: str) -> float | None:
    """A duration in seconds ("0.5s") or milliseconds ("20ms")."""
    scale, digits = (1e-3, text[:-2]) if text.endswith("ms") else (1.0, text[:-1])
    number = _plain(digits, whole=False) if text.endswith("s") else None
    return None if number is None else number * scale


def _plain(text: str, *, whole: bool) -> float | None:
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        return None
    return number if number >= 0 and math.isfinite(number) else None


def _check(model: SimulatedModel) -> None:
    if model.forwards > model.block_length:
        got = f"{model.forwards} forwards and block={model.block_length}"
        raise _malformed(model.name, "a block of at least as many positions as forwards", got)
    for key in ("context", "longest"):
        if getattr(model, key) < 1:
            raise _malformed(model.name, f"{key} of at least 1", getattr(model, key))
    if 0 < model.tokens < 1:
        raise _malformed(model.name, "tokens of 0 or at least 1", model.tokens)


def _known() -> str:
    return ", ".join(_KEYS)


def _malformed(name: str, expected: str, got: object) -> ModelError:
    return ModelError(invalid(f"model {name!r}", expected=expected, got=got))
