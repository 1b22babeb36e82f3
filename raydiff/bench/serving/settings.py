"""What a run of `raydiff bench serve` measures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from raydiff.bench.serving.arrivals import Arrivals
from raydiff.config import Dtype, EngineSettings, ModelSettings, usable_cores
from raydiff.errors import UsageError, invalid
from raydiff.request import Lane

OWN = ("http", "haproxy", "handle", "engine", "bare")
"""Contenders that are started here: the app through Serve's proxy, an app behind HAProxy, the app's
replicas through their handle, an engine called by as many clients, and an engine that gets all
prompts at once."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One contender under one load."""

    contender: str
    """One of `OWN`, or the URL of an app that runs already."""
    clients: int = 0
    """Requests in flight at a time; 0 for an open loop."""
    rate_per_s: float = 0.0
    """Requests due per second; 0 for a closed loop."""
    prompts_per_request: int = 1

    @property
    def load(self) -> tuple[int, float, int]:
        """What cases that can be compared have in common."""
        return self.clients, self.rate_per_s, self.prompts_per_request


@dataclass(frozen=True, kw_only=True)
class ServeBench:
    """Settings of one run."""

    input: str
    model: str = "summarizer"
    name: str = ""
    """That requests use; empty means the last part of `model`."""
    dtype: Dtype = "bf16"
    threads: int = 0
    replicas: int = 1
    documents: int = 256
    contenders: tuple[str, ...] = ("http",)
    urls: tuple[str, ...] = ()
    """Apps that run already, without `/v1`."""
    clients: tuple[int, ...] = (64,)
    rates: tuple[float, ...] = ()
    """Requests per second of open loops, which take the place of clients."""
    arrivals: Arrivals = "poisson"
    prompts_per_request: tuple[int, ...] = (1,)
    requests: int = 0
    """Requests of a turn, warm-up included; 0 takes each document once, and four a client at
    least."""
    warm_up: int | None = None
    """Requests at the beginning of a turn that are not counted; `None` is one a client, and a
    tenth of an open loop."""
    prompt_tokens: int | None = None
    """Tokens of each prompt's text, made of the documents; `None` takes these as they are."""
    output_tokens: int | None = None
    """Tokens of each answer, exactly; `None` lets the model end."""
    stream: bool = False
    lane: Lane = "interactive"
    key: str | None = None
    """API key."""
    rounds: int = 1
    processes: int = 1
    """Processes that generate load."""
    max_rows: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = next((c for c in self.contenders if c not in OWN), None)
        if unknown is not None:
            expected = f"of {', '.join(OWN)}"
            raise UsageError(invalid("contenders", expected=expected, got=unknown), "contenders")
        for name in ("clients", "prompts_per_request"):
            for value in getattr(self, name):
                _at_least(1, name.replace("_", "-"), value)
        for name in ("rounds", "processes", "replicas"):
            _at_least(1, name, getattr(self, name))
        if self.warm_up is not None:
            _at_least(0, "warm-up", self.warm_up)
        if "bare" in self.contenders and (self.stream or self.rates):
            message = "contenders: 'bare' has no clients, no rate and no streams. Use 'engine'."
            raise UsageError(message, "contenders")

    @property
    def served_model(self) -> ModelSettings:
        """The model as all contenders run it."""
        engine = EngineSettings(threads=self.threads or usable_cores(), max_rows=self.max_rows)
        return ModelSettings(
            name=self.name,
            model=self.model,
            dtype=self.dtype,
            engine=engine,
            min_replicas=self.replicas,
            max_replicas=self.replicas,
        )

    def cases(self) -> Iterator[Case]:
        """Contenders next to each other under each load."""
        for prompts in self.prompts_per_request:
            for clients, rate in self._loops():
                for contender in (*self.contenders, *self.urls):
                    yield Case(
                        contender=contender,
                        clients=clients,
                        rate_per_s=rate,
                        prompts_per_request=prompts,
                    )

    def requests_of(self, case: Case) -> int:
        """Requests of one turn."""
        whole = -(-self.documents // case.prompts_per_request)
        return self.requests or max(whole, 4 * case.clients)

    def warm_up_of(self, case: Case) -> int:
        """How many of them are left out."""
        requests = self.requests_of(case)
        usual = case.clients or requests // 10
        return min(usual if self.warm_up is None else self.warm_up, requests - 1)

    def _loops(self) -> Iterator[tuple[int, float]]:
        if self.rates:
            yield from ((0, rate) for rate in self.rates)
        else:
            yield from ((clients, 0.0) for clients in self.clients)


def _at_least(least: int, name: str, value: int) -> None:
    if value < least:
        expected = f"an integer of at least {least}"
        raise UsageError(invalid(name, expected=expected, got=value), name)
