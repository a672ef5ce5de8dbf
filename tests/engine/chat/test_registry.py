"""Choosing a chat format by control tokens."""

import pytest

from engine.chat.deepseek_v4_dialect import CONTROL_TOKENS
from engine.chat.registry import chat_format_for
from engine.errors import ModelFileError
from engine.tokenizer import Tokenizer
from tests.engine.chat.conftest import byte_tokenizer


def test_chatml_by_its_tokens(chatml_tokenizer: Tokenizer) -> None:
    assert chat_format_for("qwen2", chatml_tokenizer, {}).name == "chatml"


def test_deepseek_v4_by_its_tokens(v4_tokenizer: Tokenizer) -> None:
    assert chat_format_for("deepseek4", v4_tokenizer, {}).name == "deepseek_v4"


@pytest.mark.parametrize("controls", [["</s>"], ["<|im_end|>"], list(CONTROL_TOKENS[:-1])])
def test_unknown_tokens_are_refused(controls: list[str]) -> None:
    tokenizer = byte_tokenizer(controls, [], controls[0])
    with pytest.raises(ModelFileError, match="has no known chat format") as caught:
        chat_format_for("llama", tokenizer, {"general.name": "Base Model"})
    assert "Base Model (llama)" in str(caught.value)
    assert "chatml" in str(caught.value) and "deepseek_v4" in str(caught.value)
