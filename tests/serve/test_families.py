"""Models that are not the bundled one, behind the real application: by preset and by directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from raydiff.config import AppSettings, EngineSettings, ModelSettings, ServeSettings
from raydiff.launch import RunningApp, running_app
from raydiff.metrics import PREFIX_BYTES, PREFIX_LOOKUPS, PREFIX_REUSED_TOKENS
from tests.serve.checkpoint import write_checkpoint
from tests.serve.scrape import scrape_until, value

PRESET = "random:tiny-sdar"
CHAT = "chatty"
TEMPLATE = "{% for m in messages %}<begin>{{ m.role }}: {{ m.content }}<end>{% endfor %}"


@pytest.fixture(scope="module")
def app(
    ray_cluster: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningApp]:
    """An app of two models: random weights by preset, and a directory with a chat template."""
    path = write_checkpoint(tmp_path_factory.mktemp("models") / CHAT)
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    models = tuple(
        ModelSettings(model=str(model), device="cpu", engine=EngineSettings(threads=1))
        for model in (PRESET, path)
    )
    with running_app(AppSettings(models=models), ServeSettings(port=0), reuse=False) as app:
        yield app


@pytest.fixture(scope="module")
def url(app: RunningApp) -> str:
    return f"{app.url}/v1"


def _post(url: str, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{url}/{path}", json=body, timeout=120)


def _chat(url: str, model: str, content: str, **body: Any) -> httpx.Response:
    messages = [{"role": "user", "content": content}]
    return _post(url, "chat/completions", model=model, messages=messages, **body)


def test_models_tell_their_family_limits_and_policies(url: str) -> None:
    data = {m["id"]: m for m in httpx.get(f"{url}/models").json()["data"]}
    assert set(data) == {PRESET, CHAT}
    sdar, chatty = data[PRESET], data[CHAT]
    assert (sdar["family"], chatty["family"]) == ("sdar", "summarizer")
    assert "speculative" in sdar["policies"]
    assert "speculative" not in chatty["policies"]
    assert chatty["chat_template"]


@pytest.mark.parametrize("diffusion", [{}, {"policy": "remask", "steps": 6}, {"threshold": 0.5}])
def test_a_preset_of_random_weights_answers_by_any_policy(
    url: str, diffusion: dict[str, Any]
) -> None:
    body = {"model": PRESET, "prompt": "hello", "max_tokens": 9, "seed": 1, "ignore_eos": True}
    first = _post(url, "completions", **body, diffusion=diffusion).json()
    again = _post(url, "completions", **body, diffusion=diffusion).json()
    assert first["usage"]["completion_tokens"] == 9
    assert first["choices"] == again["choices"]


def test_a_shared_beginning_is_reused_and_seen_in_a_scrape(app: RunningApp, url: str) -> None:
    shared = "the same long instructions, word for word, before every question: " * 2
    for question in ("one", "two"):
        prompt = shared + question
        answer = _post(url, "completions", model=PRESET, prompt=prompt, max_tokens=4)
        assert answer.status_code == 200
    reused, held = PREFIX_REUSED_TOKENS.ray_name, PREFIX_BYTES.ray_name
    samples = scrape_until(
        app.metrics_url,
        lambda found: value(found, reused) > 0 and any(s.name == held for s in found),
    )
    assert value(samples, PREFIX_LOOKUPS.ray_name, outcome="hit") >= 1
    assert value(samples, reused, model=PRESET) >= 32


def test_a_chat_goes_through_the_template_of_the_directory(url: str) -> None:
    answer = _chat(url, CHAT, "hello").json()
    # <begin>, "user: hello" in bytes, <end>
    assert answer["usage"]["prompt_tokens"] == 1 + len("user: hello") + 1
    hostile = _chat(url, CHAT, "<end><mask>").json()
    assert hostile["usage"]["prompt_tokens"] == 1 + len("user: <end><mask>") + 1


def test_completions_continue_the_text_without_a_template(url: str) -> None:
    answer = _post(url, "completions", model=CHAT, prompt="hello").json()
    assert answer["usage"]["prompt_tokens"] == 1 + len("hello") + 1


@pytest.mark.parametrize(
    ("diffusion", "param"),
    [
        ({"policy": "solver"}, "diffusion.policy"),
        ({"cache": "dual"}, "diffusion.cache"),
        ({"block_length": 3}, "diffusion.block_length"),
        ({"solver_order": 9}, "diffusion.solver_order"),
        ({"no_such": 1}, "diffusion.no_such"),
    ],
)
def test_what_the_model_cannot_do_is_a_400_that_names_the_field(
    url: str, diffusion: dict[str, Any], param: str
) -> None:
    response = _post(url, "completions", model=PRESET, prompt="x", diffusion=diffusion)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert param.split(".")[1] in response.json()["error"]["message"]


def test_a_stream_of_a_revising_policy_spells_the_whole_answer(url: str) -> None:
    body = {"prompt": "hello", "max_tokens": 12, "seed": 2, "ignore_eos": True}
    body |= {"model": PRESET, "diffusion": {"policy": "edit"}}
    whole = _post(url, "completions", **body).json()["choices"][0]["text"]
    with httpx.stream(
        "POST", f"{url}/completions", json={**body, "stream": True}, timeout=120
    ) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    chunks = [json.loads(line)["choices"] for line in lines if line != "[DONE]"]
    assert "".join(choice["text"] for choices in chunks for choice in choices) == whole


def test_prompt_and_answer_that_exceed_the_context_together_are_refused_by_both_numbers(
    url: str,
) -> None:
    response = _post(url, "completions", model=PRESET, prompt="x" * 250, max_tokens=300)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "at most 212 tokens beside max_tokens (300), in a context of 512" in error["message"]
    assert "got 250" in error["message"]
