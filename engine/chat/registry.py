"""Which chat format a model file speaks: told by its control tokens, not by its name."""

from typing import Any

from engine.chat.chatml import END, START, ChatmlFormat
from engine.chat.deepseek_v4 import DeepseekV4Format
from engine.chat.deepseek_v4_dialect import (
    CONTROL_TOKENS,
    DEEPSEEK_V41,
    DIALECTS,
    SYSTEM,
)
from engine.chat.format import ChatFormat
from engine.errors import ModelFileError
from engine.tokenizer import Tokenizer


def chat_format_for(
    architecture: str, tokenizer: Tokenizer, metadata: dict[str, Any]
) -> ChatFormat:
    """Choose the chat format of a model.

    Args:
        architecture: ``general.architecture`` of the file.
        tokenizer: Its vocabulary.
        metadata: Its metadata, for the error message.

    Raises:
        ModelFileError: the vocabulary has the control tokens of no known format.
    """
    family = family_of(architecture, tokenizer, metadata)
    if family == ChatmlFormat.name:
        return ChatmlFormat(tokenizer)
    return DeepseekV4Format(tokenizer, DIALECTS[family])


def family_of(architecture: str, tokenizer: Tokenizer, metadata: dict[str, Any]) -> str:
    """Name the chat format and generation of a model: ``chatml``, or a key of ``DIALECTS``.

    A V4.1 model has a system token, or a chat template with its tags. The refreshed V4 checkpoint
    is told by its date in the name, or by the effort text that only its template has. Another model
    file counts as the preview, whose efforts add the least to a prompt; where nothing but the
    vocabulary is known, as the newest V4.

    Raises:
        ModelFileError: the vocabulary has the control tokens of no known format.
    """
    if all(map(tokenizer.has_control, (START, END))):
        return ChatmlFormat.name
    if all(map(tokenizer.has_control, CONTROL_TOKENS)):
        template = str(metadata.get("tokenizer.chat_template", ""))
        if tokenizer.has_control(SYSTEM) or DEEPSEEK_V41.tags.block_open in template:
            return "deepseek_v41"
        name = str(metadata.get("general.name", ""))
        is_refreshed = "0731" in name or "Beyond maximum" in template or not metadata
        return "deepseek_v4" if is_refreshed else "deepseek_v4_preview"
    name = metadata.get("general.name", "the model")
    raise ModelFileError(
        f"{name} ({architecture}) has no known chat format, expected the control tokens of "
        "chatml (<|im_start|>) or deepseek_v4 (<｜User｜>)",
        "Use an instruction-tuned model such as Qwen 2.5 Coder Instruct.",
    )
