"""What a reply must be, in terms of conversations; and the pieces that its grammars share."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.chat.format import ToolSpec
from engine.grammar import schema_text
from engine.tokenizer import Tokenizer

# One spelling of white space in JSON, that of the models' training data: with free white space a
# small model may write newlines for ever.
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_HOLD_ONE = ("items", "prefixItems", "anyOf", "oneOf", "additionalProperties")
_HOLD_NAMED = ("properties", "$defs", "definitions")
# Beside these, the members of an object may be named elsewhere.
_COMBINED = frozenset(
    {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "minProperties"}
)
ANY_TEXT = "(?s:.*)"


@dataclass(frozen=True, slots=True)
class ReplyRule:
    """What one reply must be.

    Attributes:
        tools: What may be called, with the schemas of the arguments.
        must_call: The reply is a call and nothing else.
        answer_schema: JSON schema of an answer that is no call; None leaves it free.
        thinking: The reply begins, or may begin, with thinking, which is free.
        files: Names of files of which the reply may hold a new text, as file blocks; in ChatML
            only. ``must_call`` is then fulfilled by a file, too.
        begins_as_words: An answer that is neither call nor file begins with a letter: not with
            a tag, a bracket or a fence, in which small models imitate the result of a tool.
    """

    tools: tuple[ToolSpec, ...] = ()
    must_call: bool = False
    answer_schema: Any = None
    thinking: bool = False
    files: tuple[str, ...] = ()
    begins_as_words: bool = False


def literal(text: str) -> str:
    """Return a text as a literal of a Lark grammar."""
    return json.dumps(text, ensure_ascii=False)


def token(text: str, tokenizer: Tokenizer) -> str:
    """Return a tag as a grammar symbol: its token where the vocabulary has one, else its text."""
    if tokenizer.has_control(text):
        return f"<[{tokenizer.control_id(text)}]>"
    return literal(text)


def regex(pattern: str, without: Sequence[str] = ()) -> str:
    """Return a terminal: a regular expression, without those matches that contain a pattern.

    A slash, which would end the expression, is escaped here, also in a pattern.
    """
    parts = [pattern, *(f"{ANY_TEXT}{bad}{ANY_TEXT}" for bad in without)]
    escaped = [part.replace("/", r"\/") for part in parts]
    return " & ~".join(f"/{part}/" for part in escaped)


def closed(schema: Any) -> Any:
    """Return a schema whose objects have only the members that it names, where it names any.

    A subset of what the schema allows. Where members of any name may follow, the library doesn't
    keep a name from coming twice, and an object with the same key twice is no call.
    """
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    for key in _HOLD_ONE:
        if key in result:
            result[key] = closed(result[key])
    for key in _HOLD_NAMED:
        if isinstance(result.get(key), dict):
            result[key] = {name: closed(item) for name, item in result[key].items()}
    named = result.get("properties")
    if (
        isinstance(named, dict)
        and result.get("additionalProperties", True) is True
        and set(result.get("required") or ()) <= set(named)
        and not set(result) & _COMBINED
    ):
        result["additionalProperties"] = False
    return result


def json_value(schema: Any) -> str:
    """Return the symbol of a JSON value of a schema, in the trained white space."""
    schema = closed(schema)
    if isinstance(schema, dict):
        schema = {**schema, "x-guidance": _SPACING}
    elif schema is True:
        schema = {"x-guidance": _SPACING}
    return f"%json {schema_text(schema)}"
