"""Rendered conversations before they are tokens: text and control tokens, kept apart.

A format renders segments first, so that what it writes can be compared without a vocabulary, and
so that no text can ever pass for a control token. Also here: what all streaming parsers share,
looking for marks in text that arrives in pieces.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.chat.format import ToolSpec
from engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Control:
    """A control or markup token, by its text."""

    text: str


Segment = str | Control


def join(segments: Iterable[Segment]) -> list[Segment]:
    """Join neighbouring texts and drop empty ones.

    A model was trained on text that was cut at control tokens only, so text from two sources that
    stands side by side is encoded as one.
    """
    joined: list[Segment] = []
    for segment in segments:
        if isinstance(segment, str) and joined and isinstance(joined[-1], str):
            joined[-1] += segment
        elif segment != "":
            joined.append(segment)
    return joined


def encode(segments: Iterable[Segment], tokenizer: Tokenizer) -> list[int]:
    """Turn segments into token ids.

    Raises:
        ModelFileError: the vocabulary lacks one of the control tokens.
    """
    return tokenizer.encode_segments(
        segment if isinstance(segment, str) else tokenizer.control_id(segment.text)
        for segment in join(segments)
    )


def plain_text(segments: Iterable[Segment]) -> str:
    """Return the rendering as one string, control tokens by name. For people and tests only:
    the string no longer tells text from control tokens."""
    return "".join(s if isinstance(s, str) else s.text for s in segments)


def markup(text: str, tokenizer: Tokenizer) -> Segment:
    """Return the token of a tag where the vocabulary has one, else the tag as text."""
    return Control(text) if tokenizer.has_control(text) else text


def find_mark(text: str, marks: Sequence[str]) -> tuple[int, str]:
    """Find the first of several marks.

    Returns:
        Where it begins and which it is; or, if there is none, the position from which ``text``
        may be the beginning of one (its length if it can't be) and ``""``.
    """
    found = min(((at, mark) for mark in marks if (at := text.find(mark)) >= 0), default=None)
    if found is not None:
        return found
    return partial_mark(text, marks), ""


def partial_mark(text: str, marks: Sequence[str]) -> int:
    """Return from where the end of ``text`` may be the beginning of a mark, else its length."""
    for at in range(max(0, len(text) - max(map(len, marks)) + 1), len(text)):
        tail = text[at:]
        if any(mark.startswith(tail) for mark in marks):
            return at
    return len(text)


def example_arguments(tool: ToolSpec) -> dict[str, Any]:
    """Return arguments of the right shape for a tool, for the example in an error message.

    Texts are ``"..."``: a model copies a realistic example as if it were a fact.
    """
    properties = tool.parameters.get("properties") or {}
    required = tool.parameters.get("required") or list(properties)[:1]
    return dict(_examples(required, properties))


def _examples(required: Sequence[str], properties: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    samples = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    for key in required:
        schema = properties.get(key)
        kind = schema.get("type") if isinstance(schema, dict) else None
        yield key, samples.get(kind, "...") if isinstance(kind, str) else "..."
