"""What differs between the generations of DeepSeek V4 checkpoints, as data.

The layout is one (``engine.chat.deepseek_v4_layout``); the preview and the refreshed checkpoint
differ only in what efforts mean, V4.1 also in its tags and in where system messages stand.
"""

from dataclasses import dataclass
from typing import Any

from engine.chat.dsml_tags import MARK, V4, V41, TagFamily
from engine.chat.effort import NUMBERED, PREVIEW, REFRESHED, EffortLadder

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
SYSTEM, USER, ASSISTANT = "<｜System｜>", "<｜User｜>", "<｜Assistant｜>"
REMINDER = "<｜latest_reminder｜>"
THINK, THINK_END = "<think>", "</think>"
CONTROL_TOKENS = (BOS, EOS, USER, ASSISTANT, THINK, THINK_END, MARK)  # of every generation
# The token that V4.1 calls <｜System｜> (id 128799) is a place-holder in V4's vocabulary.
SYSTEM_PLACEHOLDER = "<｜place▁holder▁no▁799｜>"

_SCHEMA_FORMAT = (
    "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
)
_OBJECT_FORMAT = (
    "\n\nYou are a helpful assistant designed to output JSON.\n"
    "## Response Format:\n\nReply with JSON object ONLY."
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """One generation.

    Attributes:
        name: Of the chat format.
        tags: Spelling of the tool calls.
        efforts: What efforts mean.
        marks_system: System texts have a token of their own and stand where they were said;
            otherwise all are lifted to the top.
        merges_results: Texts and results after one reply share one turn, and results are sorted
            over the whole turn; otherwise a result after a text opens a turn.
        empty_call: What stands between the tags of a call without arguments.
        object_format: What asks for any JSON object; a schema where it is no text.
    """

    name: str
    tags: TagFamily
    efforts: EffortLadder
    marks_system: bool = False
    merges_results: bool = False
    empty_call: str = ""
    object_format: str | None = _OBJECT_FORMAT

    def response_format(self, schema: Any, as_json: Any) -> str:
        """Return the section that asks for a schema (None: for any JSON object)."""
        if schema is not None:
            return _SCHEMA_FORMAT + as_json(schema)
        return self.object_format or _SCHEMA_FORMAT + as_json({"type": "json_object"})


PREVIEW_V4 = Dialect("deepseek_v4", V4, PREVIEW)
DEEPSEEK_V4 = Dialect("deepseek_v4", V4, REFRESHED)
DEEPSEEK_V41 = Dialect(
    "deepseek_v41",
    V41,
    NUMBERED,
    marks_system=True,
    merges_results=True,
    empty_call="\n",
    object_format=None,
)
DIALECTS = {  # as on a command line
    "deepseek_v4": DEEPSEEK_V4,
    "deepseek_v4_preview": PREVIEW_V4,
    "deepseek_v41": DEEPSEEK_V41,
}
