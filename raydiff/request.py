"""What travels between callers and the engine: plain frozen records, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from raydiff.decoding import MAX_SEED
from raydiff.decoding import Decoding as Decoding

Lane = Literal["interactive", "batch"]
FinishReason = Literal["stop", "length", "cancelled", "error"]


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
    choices: tuple[tuple[int, ...], ...] = ()
    """Texts of which exactly one is to come out, as token ids without end token; none leaves the
    text free. What is committed when is then the choices' own rule (`diffusion.choosing`): of the
    decoding's policy it reads `steps`, after which it decides at the latest."""
    stream: bool = False
    """Emit text as it commits; otherwise all of it comes with the completion."""
    logprobs: int | None = None
    """Log-probabilities of the committed tokens, each with so many of the likeliest alternatives;
    `None` gives none."""
    snapshots: bool = False
    """Of a stream: emit the whole canvas after each forward, undecided positions included."""
    tenant: str = ""
    """On whose behalf: tenants of a lane take turns, so that none starves another."""


def choice_seed(seed: int | None, choice: int) -> int | None:
    """The seed of the `choice`th of several answers to one request: the first has the request's
    own, the others are derived from it, so that each is the same whenever it is asked for again.
    Without a seed none has one."""
    if seed is None or choice == 0:
        return seed
    digest = sha256(f"{seed}/{choice}".encode()).digest()
    return int.from_bytes(digest[:8]) & MAX_SEED


@dataclass(frozen=True, kw_only=True)
class TokenLogprob:
    """How likely a committed token was in the forward that committed it."""

    token_id: int
    logprob: float
    """Natural logarithm of its probability under the model's own distribution at that position
    (temperature 1, nothing cut off)."""
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens there, (id, log-probability), likeliest first."""


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
    choice_probability: float | None = None
    """Of a request with choices: the model's probability of the one that came out, which over all
    choices adds up to 1. It is the product, over the forwards, of the probability of what each
    committed among the choices then left; of choices of one token, or decided in one forward, the
    softmax of their summed log-probabilities. Temperature does not change it."""
    logprobs: tuple[TokenLogprob, ...] | None = None
    """One per token of `token_ids`, where the request asked for them."""
    queue_s: float = 0.0
    """Seconds between submission and the first forward."""
    total_s: float = 0.0
    """Seconds between submission and the end."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that became final: committed text, or the end of a request."""

    request_id: str
    text: str = ""
    """Newly committed text; the concatenation over a request's events is its text."""
    completion: Completion | None = None
    """Set on the last event of a request."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """Of the tokens whose text this event brings, where the request asked for them."""
    usage: Usage | None = None
    """What the request has cost so far; on events of streams."""
    snapshot: str | None = None
    """The canvas as it stands, beside new text: what is undecided may still change. That of the
    last event is the completion's text."""

    def then(self, later: Event) -> Event:
        """This event and a later one of the same request as one: no text is lost, of usage and
        snapshots the latest counts."""
        return Event(
            request_id=self.request_id,
            text=self.text + later.text,
            completion=later.completion or self.completion,
            logprobs=self.logprobs + later.logprobs,
            usage=later.usage or self.usage,
            snapshot=self.snapshot if later.snapshot is None else later.snapshot,
        )


StepKind = Literal["encode", "denoise"]


@dataclass(frozen=True, kw_only=True)
class PrefixStats:
    """What the cache of prompts' beginnings did for one encoding forward."""

    lookups: int
    """Prompts looked up."""
    hits: int
    """Prompts of which at least a part was there."""
    reused_tokens: int
    """Prompt tokens that needed no encoding."""
    evictions: int
    """Pieces of prompts dropped for room."""
    held_bytes: int
    """Bytes of keys and values held now."""


@dataclass(frozen=True, kw_only=True)
class StepStats:
    """One forward, as the engine reports it to a Recorder."""

    kind: StepKind
    rows: int
    """Rows that took part."""
    positions: int
    """Token positions computed."""
    padded_positions: int = 0
    """Places of the forward's tensors beside those: rows are padded to the longest."""
    context_positions: int = 0
    """Cached positions that the rows attend to."""
    padded_context_positions: int = 0
    """Cached places that were read beside those."""
    forward_s: float
    """Seconds from planning the forward to its tokens being known."""
    committed_tokens: int
    """Positions committed by this forward, end tokens included."""
    queue_depth: Mapping[str, int] = field(default_factory=dict)
    """Requests waiting for admission, by lane."""
    active_rows: int = 0
    """Requests admitted and not finished."""
    prefix: PrefixStats | None = None
    """What was reused of earlier prompts, on encoding forwards where that is on."""
    lane: Lane = "interactive"
    """Whose forward it was."""
    lane_rows: Mapping[Lane, int] = field(default_factory=dict)
    """Rows by lane."""
    batch_forwards_waited: int | None = None
    """Of the interactive requests that began with this forward: the most forwards of the batch
    lane that one of them waited for."""
    backlog: Backlog | None = None
    """What was left afterwards."""


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


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """Work that an engine has taken on and not done yet, by lane."""

    requests: Mapping[Lane, int]
    """Waiting and admitted."""
    row_forwards: Mapping[Lane, float]
    """Forwards that those requests still need, each counted by itself, by estimate."""
    row_forwards_per_s: float
    """Rows times forwards that the engine lately did per second of work; 0 before the first."""

    def seconds(self, lane: Lane | None = None) -> float:
        """How long the engine needs for a lane's work, or for all of it; 0 when it is not known."""
        rows = self.row_forwards
        left = sum(rows.values()) if lane is None else rows.get(lane, 0.0)
        return left / self.row_forwards_per_s if self.row_forwards_per_s > 0 else 0.0
