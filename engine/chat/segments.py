"""Rendered conversations before they are tokens: text and control tokens, kept apart.

A format renders segments first, so that what it writes can be compared without a vocabulary, and
so that no text can ever pass for a control token.
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


def control_ranges(segments: Iterable[Segment]) -> list[list[int]]:
    """Return where control tokens stand in ``plain_text``: half-open code-point ranges."""
    ranges, at = [], 0
    for segment in segments:
        text = segment if isinstance(segment, str) else segment.text
        if isinstance(segment, Control):
            ranges.append([at, at + len(text)])
        at += len(text)
    return ranges


def split_marks(text: str, marks: Sequence[str]) -> Iterator[Segment]:
    """Yield a text of our own with the marks in it as control tokens.

    Only for what a format itself writes, and for what the model has sampled: never for text from
    people, files or tools.
    """
    if not marks:
        yield text
        return
    for index, part in enumerate(text.split(marks[0])):
        if index:
            yield Control(marks[0])
        yield from split_marks(part, marks[1:])


def markup(text: str, tokenizer: Tokenizer) -> Segment:
    """Return the token of a tag where the vocabulary has one, else the tag as text."""
    return Control(text) if tokenizer.has_control(text) else text


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
