"""Requests of random validity: sound bodies with, often, something wrong in them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Make = Callable[[random.Random], Any]

PATHS = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize")
_WORDS = ("one", "zwei", "trois", "\u56db", "\U0001f600", "", " ", "\n", "<mask>", "{", "\x00")


@dataclass(frozen=True)
class RandomRequest:
    """What to send, as `httpx` takes it."""

    path: str
    content: bytes
    headers: dict[str, str]


def random_request(rng: random.Random) -> RandomRequest:
    """The next request."""
    path = rng.choices(PATHS, (4, 4, 1, 1))[0]
    body = _SOUND[path](rng)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        _spoil(body, rng)
    content = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "replace")
    if rng.random() < 0.05:
        content = _broken(content, rng)
    return RandomRequest(path, content, _headers(rng))


def _text(rng: random.Random) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(rng.randrange(8)))


def _token_ids(rng: random.Random) -> list[int]:
    return [rng.randrange(4, 260) for _ in range(rng.randrange(1, 12))]


def _prompt(rng: random.Random) -> Any:
    one: list[Make] = [_text, _token_ids]
    if rng.random() < 0.7:
        return rng.choice(one)(rng)
    return [rng.choice(one)(rng) for _ in range(rng.randrange(1, 4))]


def _message(rng: random.Random) -> dict[str, Any]:
    content: Any = _text(rng)
    if rng.random() < 0.2:
        content = [{"type": "text", "text": _text(rng)} for _ in range(2)]
    return {"role": rng.choice(("system", "user", "assistant", "developer")), "content": content}


_SHARED: dict[str, Make] = {
    "model": lambda rng: "tiny",
    "n": lambda rng: rng.randrange(1, 4),
    "min_tokens": lambda rng: rng.randrange(3),
    "ignore_eos": lambda rng: rng.random() < 0.5,
    "temperature": lambda rng: rng.choice((0, 0.5, 1, 2)),
    "top_p": lambda rng: rng.choice((0.1, 0.9, 1)),
    "top_k": lambda rng: rng.choice((-1, 0, 5)),
    "seed": lambda rng: rng.randrange(2**40),
    "stop": lambda rng: rng.choice(("a", ["b"], ["ab", "abc"], [], None)),
    "stream": lambda rng: rng.random() < 0.3,
    "user": _text,
    "service_tier": lambda rng: rng.choice(("auto", "default", "flex")),
    "presence_penalty": lambda rng: 0,
    "diffusion": lambda rng: rng.choice(({}, {"steps": 4}, {"policy": "threshold"})),
}
_CHAT: dict[str, Make] = {
    **_SHARED,
    "logprobs": lambda rng: rng.random() < 0.5,
    "truncation": lambda rng: rng.choice(("none", "oldest_turns")),
}
_COMPLETION: dict[str, Make] = {
    **_SHARED,
    "logprobs": lambda rng: rng.randrange(4),
    "echo": lambda rng: rng.random() < 0.3,
}


def _some(fields: dict[str, Make], rng: random.Random) -> dict[str, Any]:
    return {name: make(rng) for name, make in fields.items() if rng.random() < 0.2}


def _completion(rng: random.Random) -> dict[str, Any]:
    return {"prompt": _prompt(rng), "max_tokens": rng.randrange(1, 9), **_some(_COMPLETION, rng)}


def _chat(rng: random.Random) -> dict[str, Any]:
    messages = [_message(rng) for _ in range(rng.randrange(1, 4))]
    return {"messages": messages, "max_completion_tokens": 8, **_some(_CHAT, rng)}


def _tokenize(rng: random.Random) -> dict[str, Any]:
    chat = {"messages": [_message(rng)]}
    return chat if rng.random() < 0.5 else {"prompt": _text(rng), "return_token_strs": True}


def _detokenize(rng: random.Random) -> dict[str, Any]:
    return {"tokens": _token_ids(rng)}


_SOUND: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "/v1/completions": _completion,
    "/v1/chat/completions": _chat,
    "/tokenize": _tokenize,
    "/detokenize": _detokenize,
}

_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, 1e308, -(2**63), 2**63, 2**70),
    *("", "x", "x" * 5000, "\u202e", "tiny", "auto", [], [[]], [None], ["a"] * 20, [1, "a"]),
    *({}, {"a": 1}, {"type": "text"}, {"steps": 10**9}, {"policy": "none"}, [{"role": "tool"}]),
)
_OTHERS = (
    *("tools", "tool_choice", "logit_bias", "suffix", "best_of", "echo", "top_logprobs"),
    *("stream_options", "response_format", "metadata", "store", "diffusing", "n", "colour"),
    *("max_tokens", "frequency_penalty", "modalities", "functions", "", "__class__", "\u00e9"),
)


def _spoil(body: dict[str, Any], rng: random.Random) -> None:
    """Change, remove or add a field, somewhere."""
    kind = rng.randrange(4)
    names = [*body, *_OTHERS]
    if kind == 0 and body:
        del body[rng.choice(list(body))]
    elif kind == 1 and isinstance(body.get("messages"), list) and body["messages"]:
        message = rng.choice(body["messages"])
        if isinstance(message, dict):
            name = rng.choice((*message, "tool_calls", "name", "audio"))
            message[name] = rng.choice((*_ODD, "tool", "function"))
    else:
        body[rng.choice(names)] = rng.choice(_ODD)


def _broken(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content) + 1)
    return rng.choice(
        (
            content[:at],
            content[:at] + bytes([rng.randrange(256)]) + content[at:],
            b"",
            b"[" * 3000,
            b'{"a": NaN}',
            b'{"a": "\\ud800"}',
            b"x" * 120_000,
        )
    )


def _headers(rng: random.Random) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if rng.random() < 0.1:
        headers["x-request-id"] = rng.choice(("mine", "a b", "x" * 300, "", "\u00fc"))
    if rng.random() < 0.1:
        headers["x-request-timeout-seconds"] = rng.choice(("5", "0", "-1", "nan", "soon", "1e400"))
    return headers
