"""A byte-level vocabulary with the control tokens of both formats, and two tools."""

import pytest

from engine.chat.deepseek_v4_dialect import CONTROL_TOKENS
from engine.chat.format import ToolSpec
from engine.tokenizer import Tokenizer

PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
BYTES = [chr(byte) for byte in PRINTABLE] + [chr(256 + i) for i in range(256 - len(PRINTABLE))]
CHATML = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]


def byte_tokenizer(controls: list[str], markup: list[str], end: str) -> Tokenizer:
    tokens = BYTES + controls + markup
    types = [1] * len(BYTES) + [3] * len(controls) + [4] * len(markup)
    return Tokenizer(tokens, [], types, "qwen2", tokens.index(end))


@pytest.fixture(scope="session")
def chatml_tokenizer() -> Tokenizer:
    return byte_tokenizer(CHATML, ["<tool_call>", "</tool_call>"], "<|im_end|>")


@pytest.fixture(scope="session")
def thinking_tokenizer() -> Tokenizer:
    return byte_tokenizer(CHATML, ["<think>", "</think>", "<tool_call>"], "<|im_end|>")


@pytest.fixture(scope="session")
def v4_tokenizer() -> Tokenizer:
    return byte_tokenizer(list(CONTROL_TOKENS), [], CONTROL_TOKENS[1])


@pytest.fixture(scope="session")
def tools() -> tuple[ToolSpec, ...]:
    path = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    nothing = {"type": "object", "properties": {}}
    return (ToolSpec("read", "Read a file.", path), ToolSpec("ls", "List «files».", nothing))
