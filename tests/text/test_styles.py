"""What a task says to a model, with and without a chat template."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from raydiff.config import TaskSettings
from raydiff.decoding import Decoding
from raydiff.errors import UsageError
from raydiff.text import PromptStyle, decoding_for, prompt_style, read_examples
from raydiff.text.styles import DEFAULT_INSTRUCTION
from tests.corpus.conftest import make_toy_model
from tests.text.conftest import CHATML

TASK = TaskSettings()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model without a chat template."""
    return make_toy_model(tmp_path_factory.mktemp("models") / "plain", 64)


@pytest.fixture(scope="module")
def chat(plain: str) -> str:
    """A model with one."""
    path = shutil.copytree(plain, Path(plain).with_name("chat"))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    return str(path)


def test_only_models_with_a_chat_template_are_told_what_to_do(plain: str, chat: str) -> None:
    assert prompt_style(plain, TASK) == PromptStyle()
    assert prompt_style(plain, TASK, "") == PromptStyle()
    assert prompt_style(chat, TASK) == PromptStyle.asking(DEFAULT_INSTRUCTION)
    assert prompt_style(chat, TASK, "") == PromptStyle.asking("")
    assert prompt_style(chat, TASK, "Say {it}.") == PromptStyle.asking("Say {it}.")
    with pytest.raises(UsageError, match="has no chat template") as caught:
        prompt_style(plain, TASK, "Translate it.")
    assert caught.value.param == "instruction"


def test_a_template_is_for_any_model(plain: str, chat: str) -> None:
    task = TaskSettings(template="Of {text}:", merge_template="All of {text}:")
    for model in (plain, chat):
        style = prompt_style(model, task)
        assert (style.template, style.merge_template) == ("Of {text}:", "All of {text}:")
        assert style.chat == (model == chat)
    assert prompt_style(chat, TaskSettings(template="Of {text}:")).merge_template == "Of {text}:"


def test_a_template_and_an_instruction_exclude_each_other(chat: str) -> None:
    with pytest.raises(UsageError, match="instruction: expected none beside a template"):
        prompt_style(chat, TaskSettings(template="{text}"), "Shorten.")


def test_a_system_prompt_needs_a_chat_template(plain: str, chat: str) -> None:
    task = TaskSettings(system="Be brief.")
    assert prompt_style(chat, task).system == "Be brief."
    with pytest.raises(UsageError, match="system: expected none"):
        prompt_style(plain, task)


def test_a_rewrite_has_to_be_asked_for(plain: str, chat: str) -> None:
    task = TaskSettings(kind="rewrite")
    assert prompt_style(chat, task).template.startswith("Rewrite")
    with pytest.raises(UsageError, match="template: expected one for model"):
        prompt_style(plain, task)


def test_the_labels_to_choose_from_are_named(plain: str, chat: str) -> None:
    task = TaskSettings(kind="label", labels=("good", "{bad}"))
    for model in (plain, chat):
        filled = prompt_style(model, task).template
        assert "good, {{bad}}" in filled


def test_a_target_length_is_asked_for_and_leaves_room_for_it(plain: str, chat: str) -> None:
    task = TaskSettings(target_words=10)
    assert "in about 10 words." in prompt_style(chat, task).template
    assert "Shorten. Use about 10 words." in prompt_style(chat, task, "Shorten.").template
    assert prompt_style(plain, task) == PromptStyle()
    assert decoding_for(plain, task, Decoding()).max_tokens == 20
    assert decoding_for(plain, task, Decoding(max_tokens=5)).max_tokens == 5
    assert decoding_for(plain, TASK, Decoding()) == Decoding()
    most = decoding_for(plain, TaskSettings(target_words=1000), Decoding()).max_tokens
    assert most == 32


def test_fields_of_a_template_are_columns_that_are_passed(plain: str) -> None:
    task = TaskSettings(template="{title}: {text}")
    style = prompt_style(plain, task, columns=("title",))
    assert style.fields == ("title",)
    assert style.bound({"title": "T"}).template == "T: {text}"
    with pytest.raises(UsageError, match="--pass-columns"):
        prompt_style(plain, task)


def test_examples_have_no_columns(plain: str) -> None:
    task = TaskSettings(template="{title}: {text}", examples=(("a", "b"),))
    with pytest.raises(UsageError, match="template"):
        prompt_style(plain, task, columns=("title",))


def test_examples_are_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "examples.jsonl"
    file.write_text('{"text": "long", "answer": "short"}\n\n{"answer": "b", "text": "a"}\n')
    assert read_examples(file) == (("long", "short"), ("a", "b"))


@pytest.mark.parametrize(
    "line", ["no json", "[1]", '{"text": "a"}', '{"text": 1, "answer": "b"}', '"text"']
)
def test_a_line_that_is_no_example_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "examples.jsonl"
    file.write_text('{"text": "long", "answer": "short"}\n' + line)
    with pytest.raises(UsageError, match=r"examples\.jsonl line 2: expected a JSON object"):
        read_examples(file)


def test_a_missing_or_huge_file_of_examples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_examples(tmp_path / "none")
    huge = tmp_path / "huge"
    huge.write_bytes(b" " * (2**20 + 1))
    with pytest.raises(UsageError, match="at most 1048576 bytes"):
        read_examples(huge)
