"""Which chat format a model file speaks: told by its control tokens, not by its name."""

from typing import Any

from engine.chat.chatml import END, START, ChatmlFormat
from engine.chat.deepseek_v4 import CONTROL_TOKENS, DeepseekV4Format
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
    if all(map(tokenizer.has_control, (START, END))):
        return ChatmlFormat(tokenizer)
    if all(map(tokenizer.has_control, CONTROL_TOKENS)):
        return DeepseekV4Format(tokenizer)
    name = metadata.get("general.name", "the model")
    raise ModelFileError(
        f"{name} ({architecture}) has no known chat format, expected the control tokens of "
        "chatml (<|im_start|>) or deepseek_v4 (<｜User｜>)",
        "Use an instruction-tuned model such as Qwen 2.5 Coder Instruct.",
    )
