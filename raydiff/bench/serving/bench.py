"""The contenders of a run take turns under the same loads, each in processes of its own."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from raydiff.bench.lengths import documents_of
from raydiff.bench.report import circumstances
from raydiff.bench.serving.arrivals import arrival_times
from raydiff.bench.serving.cpu import cpu_by_role, cpu_ms_per_request, processes
from raydiff.bench.serving.figures import Turn, case_record, comparisons
from raydiff.bench.serving.generator import Generated, Target, generator
from raydiff.bench.serving.host import Hosted, host
from raydiff.bench.serving.loads import Load, Tokens, make_asks, split_load
from raydiff.bench.serving.remote import Remote
from raydiff.bench.serving.settings import Case, ServeBench
from raydiff.bench.workload import load_workload
from raydiff.engine.counts import Work
from raydiff.text import DocumentPrompts, Tokenizer

LEAD_S = 0.2
"""Between handing a load to its generators and its beginning, which is the same for all."""


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """What is asked, as texts and as tokens."""

    texts: tuple[str, ...]
    prompts: tuple[Tokens, ...]
    described: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Contender:
    """The processes of one contender."""

    generators: tuple[Remote[Target], ...]
    app: Remote[Hosted] | None
    """Its app's, if that was started here."""


def run_serve_bench(
    bench: ServeBench, progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Measure all cases and return the report.

    Raises:
        ClusterError: no cluster can be used, or a process died.
        ModelError, InputError, UsageError: the model or the input cannot be used.
    """
    prompts = prompts_of(bench)
    cases = list(bench.cases())
    turns: dict[Case, list[Turn]] = {case: [] for case in cases}
    with _contenders(bench) as contenders:
        for round_ in range(bench.rounds):
            for case in cases:
                turn = _take_turn(bench, case, contenders[case.contender], prompts, round_)
                turns[case].append(turn)
                progress(f"round {round_ + 1}: {_line(case, turn)}")
    return {
        "bench": "serve",
        "circumstances": circumstances(),
        "model": bench.model,
        "dtype": bench.dtype,
        "threads": bench.served_model.engine.threads,
        "replicas": bench.replicas,
        "workload": prompts.described,
        "load": {
            "arrivals": bench.arrivals if bench.rates else "closed",
            "stream": bench.stream,
            "lane": bench.lane,
            "output_tokens": bench.output_tokens,
            "rounds": bench.rounds,
            "seed": bench.seed,
        },
        "cases": [case_record(case, taken) for case, taken in turns.items()],
        "comparisons": comparisons(turns),
    }


def prompts_of(bench: ServeBench) -> Prompts:
    """The documents, or texts of a fixed number of tokens made of them.

    Raises:
        InputError, ModelError, UsageError: the model or the input cannot be used.
    """
    tokenizer = Tokenizer.load(bench.model)
    workload = load_workload(bench.input, tokenizer, documents=bench.documents)
    texts, described = workload.texts, workload.describe()
    if bench.prompt_tokens is not None:
        lengths = [bench.prompt_tokens] * len(texts)
        texts = tuple(documents_of(lengths, texts, tokenizer, bench.seed))
        described = {
            "source": described["source"],
            "documents": len(texts),
            "text_tokens": bench.prompt_tokens,
        }
    # in the order of their lengths, the beginning of a turn would be lighter than its end
    texts = tuple(random.Random(bench.seed).sample(texts, len(texts)))
    usual = DocumentPrompts.usual(tokenizer)
    return Prompts(
        texts=texts, prompts=tuple(usual.cut(text) for text in texts), described=described
    )


def load_of(bench: ServeBench, case: Case, prompts: Prompts, round_: int) -> Load:
    """All that a case's generators send in one turn."""
    requests = bench.requests_of(case)
    due_s: tuple[float, ...] = ()
    if case.rate_per_s:
        due_s = arrival_times(requests, case.rate_per_s, bench.arrivals, bench.seed + round_)
    return Load(
        asks=make_asks(prompts.texts, prompts.prompts, requests, case.prompts_per_request),
        clients=case.clients,
        due_s=due_s,
        stream=bench.stream,
        output_tokens=bench.output_tokens,
        lane=bench.lane,
    )


@contextmanager
def _contenders(bench: ServeBench) -> Iterator[dict[str, Contender]]:
    """Processes of all contenders, ready."""
    model = bench.served_model
    with ExitStack() as stack:
        apps: dict[str, Remote[Hosted]] = {}
        if {"http", "handle"} & set(bench.contenders):
            apps["http"] = apps["handle"] = stack.enter_context(
                Remote(host, Hosted(model=model, address=_cluster_at_hand()))
            )
        if "haproxy" in bench.contenders:
            apps["haproxy"] = stack.enter_context(
                Remote(host, Hosted(model=model, address="local", haproxy=True))
            )
        for app in {app.pid: app for app in apps.values()}.values():
            app.receive()
        yield {
            name: _contender(bench, name, apps.get(name), stack)
            for name in (*bench.contenders, *bench.urls)
        }


def _contender(
    bench: ServeBench, name: str, app: Remote[Hosted] | None, stack: ExitStack
) -> Contender:
    target = Target(contender=name, model=bench.served_model, key=bench.key, url=name)
    if app is not None:
        running = app.ask("app")
        target = replace(
            target, url=running.url, address=running.address, app_name=running.app_name
        )
    count = 1 if name in ("engine", "bare") else bench.processes
    generators = tuple(stack.enter_context(Remote(generator, target)) for _ in range(count))
    for each in generators:
        each.receive()
    return Contender(generators=generators, app=app)


def _take_turn(
    bench: ServeBench, case: Case, contender: Contender, prompts: Prompts, round_: int
) -> Turn:
    load = load_of(bench, case, prompts, round_)
    app = contender.app
    work, cpu = (_work(app), _cpu(app)) if app is not None else (None, {})
    parts = split_load(load, len(contender.generators))
    begin_s = time.monotonic() + LEAD_S
    used = contender.generators[: len(parts)]
    for each, part in zip(used, parts, strict=True):
        each.send(replace(part, begin_s=begin_s))
    done: list[Generated] = [each.receive() for each in used]
    outcomes = sorted((o for part in done for o in part.outcomes), key=lambda o: o.index)
    cpu_ms = cpu_ms_per_request(cpu, _cpu(app), len(outcomes)) if app is not None else {}
    work = done[0].work if app is None or work is None else _work(app) - work
    return Turn(
        outcomes=tuple(outcomes),
        warm_up=bench.warm_up_of(case),
        processes=len(used),
        generator_cpu_s=sum(part.cpu_s for part in done),
        rows_per_forward=work.rows_per_forward if work is not None else None,
        busy_s=work.busy_s if work is not None else None,
        cpu_ms_per_request=cpu_ms,
    )


def _work(app: Remote[Hosted]) -> Work:
    work: Work = app.ask("work")
    return work


def _cpu(app: Remote[Hosted]) -> dict[str, float]:
    return cpu_by_role(app.pid, processes())


def _cluster_at_hand() -> str | None:
    """Where another process finds the cluster that this one is connected to, if any."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    address: str = ray.get_runtime_context().gcs_address
    return address


def _line(case: Case, turn: Turn) -> str:
    load = f"{case.clients} clients" if case.clients else f"{case.rate_per_s:g} requests/s"
    return (
        f"{case.contender}, {load}, {case.prompts_per_request} prompts: "
        f"{turn.requests_per_s:.1f} requests/s, {turn.output_tokens_per_s:.0f} tokens/s"
    )
