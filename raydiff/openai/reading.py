"""How every JSON body is read: strictly, and with `null` for absent."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from raydiff.errors import UsageError


class Body(BaseModel):
    """Base of request bodies: no coercion, unknown fields refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    def check(self) -> None:
        """Check the fields against each other.

        Raises:
            UsageError: they contradict each other; `param` names one.
        """


def without_nulls(value: Any) -> Any:
    """The value without the members of objects that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(v) for name, v in value.items() if v is not None}
    if isinstance(value, list) and any(isinstance(v, dict) for v in value):
        return [without_nulls(v) for v in value]
    return value


def usage_error(error: ValidationError) -> UsageError:
    """What is wrong first, with the path of the field as `param`."""
    first = error.errors(include_url=False, include_input=False)[0]
    param = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return UsageError(f"{param}: unknown field.", param)
    if first["type"] == "missing":
        return UsageError(f"{param}: required, but missing.", param)
    message = first["msg"].removeprefix("Value error, ")
    return UsageError(f"{param}: {message[:1].lower()}{message[1:]}.".replace("..", "."), param)
