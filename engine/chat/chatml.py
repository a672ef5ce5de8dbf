"""ChatML with Hermes tool calls: the format of Qwen 2.5, Qwen 3 and SmolLM2.

A turn is ``<|im_start|>role``, a newline, the text, ``<|im_end|>``, a newline. Tools are listed in
the system turn; the model answers with a JSON object in ``<tool_call>`` tags; results come back in
a user turn, in ``<tool_response>`` tags. The layout is that of the models' public templates, byte
for byte, because they were trained on it. Where tags are tokens of the vocabulary, those tokens
stand where the template has a tag, and nowhere else.

One thing differs from the template: in a tool's output the exact text ``</tool_response>`` is
written ``&lt;/tool_response>``, so that no output ends its own frame.
"""

import json
from collections.abc import Iterator, Sequence

from engine.chat.chatml_parser import ChatmlParser
from engine.chat.file_blocks import FileBlockParser
from engine.chat.format import (
    AssistantClose,
    AssistantOpen,
    CallComplete,
    CallMalformed,
    HistoryItem,
    Item,
    System,
    Text,
    Thinking,
    ToolResults,
    ToolSpec,
    TurnStart,
    User,
)
from engine.chat.segments import Control, Segment, encode, join, markup
from engine.tokenizer import Tokenizer

START, END = "<|im_start|>", "<|im_end|>"
_RESULT_CLOSE, _ESCAPED_CLOSE = "</tool_response>", "&lt;/tool_response>"
_TOOLS_HEAD = (
    "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_MIDDLE = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within "
)
_TOOLS_EXAMPLE = '\n{"name": <function-name>, "arguments": <args-json-object>}\n'
_HEAD_TOKENS = 24  # at the start of a turn: "user", a newline and "<tool_response>" are fewer
_CALL_OPENERS = b"<{[`"  # tagged, bare, in a list, fenced


class ChatmlFormat:
    """The ChatFormat of models whose vocabulary has ``<|im_start|>`` and ``<|im_end|>``."""

    name = "chatml"

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Look the control tokens up.

        Raises:
            ModelFileError: one is missing.
        """
        self._tokenizer = tokenizer
        self._call_beginnings: tuple[int, ...] | None = None  # of the vocabulary, when asked for
        self._start_id = tokenizer.control_id(START)
        self._end_id = tokenizer.control_id(END)
        self.stop_ids = frozenset({*tokenizer.eos_ids, self._end_id})
        self.can_think = tokenizer.has_control("<think>") and tokenizer.has_control("</think>")

    def render(self, items: Sequence[Item]) -> list[int]:
        """Encode the next part of a conversation."""
        return encode(self.segments(items), self._tokenizer)

    def start_segments(self) -> list[Segment]:
        """Return the start token, where the model wants one before a conversation."""
        tokenizer = self._tokenizer
        if not tokenizer.add_bos:
            return []
        return [Control(tokenizer.render([tokenizer.bos_id]).decode())]

    def segments(self, items: Sequence[Item]) -> list[Segment]:
        """Render the next part of a conversation as text and control tokens."""
        return join(segment for item in items for segment in self._item(item))

    def parser(
        self, tools: Sequence[ToolSpec], thinking: bool, *, is_forced: bool = False
    ) -> ChatmlParser:
        """Return a parser for one reply. Thinking is recognised by its tags, so the flag isn't
        needed here."""
        return ChatmlParser(tools, tagged_only=is_forced)

    def call_beginnings(self) -> tuple[int, ...]:
        """Token ids by which a call may begin."""
        if self._call_beginnings is None:
            self._call_beginnings = self._tokenizer.ids_beginning_with(_CALL_OPENERS)
        return self._call_beginnings

    def history(self, tokens: Sequence[int], tools: Sequence[ToolSpec]) -> list[HistoryItem]:
        """Read a conversation back, turn by turn, from its token ids."""
        items: list[HistoryItem] = []
        pending: list[str] = []  # names of the calls that have no result yet
        for body in self._turns(tokens):
            role, _, text = self._decode(body).partition("\n")
            if role == "assistant":
                parts, pending = self._read_reply(body, tools)
                items += parts
            elif role == "user" and pending and text.startswith("<tool_response>\n"):
                items += _read_results(text, pending)
                pending = []
            elif role == "system":
                items.append(HistoryItem("system", text.rpartition(_TOOLS_HEAD)[0] or text))
            else:
                items.append(HistoryItem("user", text))
        return items

    def turns(self, tokens: Sequence[int]) -> list[TurnStart]:
        """Return where the turns begin."""
        starts = []
        for position, token_id in enumerate(tokens):
            if token_id == self._start_id:
                # The role and the first tag of a result are few tokens, however they were cut.
                head = self._decode(tokens[position + 1 : position + 1 + _HEAD_TOKENS])
                role, _, text = head.partition("\n")
                if role == "user" and text.startswith("<tool_response>"):
                    role = "result"
                starts.append(TurnStart(position, role))
        return starts

    def _item(self, item: Item) -> Iterator[Segment]:
        match item:
            case System(text, tools):
                yield from self.start_segments()
                yield from (Control(START), "system\n", text)
                if tools:
                    yield from self._tools(tools)
                yield from (Control(END), "\n")
            case User(text):
                yield from (Control(START), "user\n", text, Control(END), "\n")
            case ToolResults(results):
                yield from (Control(START), "user")
                for _, text in results:
                    yield from ("\n", self.tag("<tool_response>"), "\n")
                    yield text.replace(_RESULT_CLOSE, _ESCAPED_CLOSE)
                    yield from ("\n", self.tag(_RESULT_CLOSE))
                yield from (Control(END), "\n")
            case AssistantOpen(thinking):
                yield from (Control(START), "assistant\n")
                if self.can_think and not thinking:
                    # The empty thought tells Qwen 3 to answer at once.
                    yield from (Control("<think>"), "\n\n", Control("</think>"), "\n\n")
            case AssistantClose(stopped, in_thinking):
                if in_thinking and self.can_think and not stopped:
                    yield from ("\n", Control("</think>"), "\n\n")
                if not stopped:
                    yield Control(END)
                yield "\n"

    def _tools(self, tools: Sequence[ToolSpec]) -> Iterator[Segment]:
        yield _TOOLS_HEAD
        for tool in tools:
            function = {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            }
            described = {"type": "function", "function": function}
            yield "\n" + json.dumps(described, ensure_ascii=False)
        yield _TOOLS_MIDDLE
        yield from (self.tag("<tool_call>"), self.tag("</tool_call>"), " XML tags:\n")
        yield from (self.tag("<tool_call>"), _TOOLS_EXAMPLE, self.tag("</tool_call>"))

    def tag(self, text: str) -> Segment:
        """Return the token of a tag where the vocabulary has one, else the tag as text."""
        return markup(text, self._tokenizer)

    def _decode(self, ids: Sequence[int]) -> str:
        raw = b"".join(self._tokenizer.token_bytes(token_id) for token_id in ids)
        return raw.decode("utf-8", "replace")

    def _turns(self, tokens: Sequence[int]) -> Iterator[list[int]]:
        """Yield the ids between each start and the end of its turn."""
        body: list[int] | None = None
        for token_id in tokens:
            if token_id == self._start_id:
                if body is not None:
                    yield body
                body = []
            elif token_id in self.stop_ids:
                if body is not None:
                    yield body
                body = None
            elif body is not None:
                body.append(token_id)
        if body:
            yield body

    def _read_reply(
        self, body: Sequence[int], tools: Sequence[ToolSpec]
    ) -> tuple[list[HistoryItem], list[str]]:
        parser = ChatmlParser(tools)
        raw = b"".join(self._tokenizer.token_bytes(token_id) for token_id in body)
        events = [*parser.feed(raw.partition(b"\n")[2]), *parser.finish()]
        items: list[HistoryItem] = []
        called: list[str] = []
        for role, kind in (("thinking", Thinking), ("assistant", Text)):
            text = "".join(event.text for event in events if isinstance(event, kind)).strip("\n")
            if text:
                items.append(HistoryItem(role, text))
        for event in events:
            if isinstance(event, CallComplete):
                call = event.call
                items.append(HistoryItem("call", call.raw, call.name, call.arguments))
                called.append(call.name)
            elif isinstance(event, CallMalformed):
                items.append(HistoryItem("assistant", event.raw))
                called.append("")
        return items, called or [""] * _n_files("".join(i.text for i in items))


def _n_files(text: str) -> int:
    """Count the whole files in a reply: their results follow as those of calls do."""
    parser = FileBlockParser(ChatmlParser(()), "")
    events = [*parser.feed(text.encode("utf-8")), *parser.finish(stopped=True)]
    return sum(isinstance(event, CallComplete) for event in events)


def _read_results(text: str, names: Sequence[str]) -> Iterator[HistoryItem]:
    # The closing tag is escaped inside a result, so this can only be the seam of two.
    seam = f"\n{_RESULT_CLOSE}\n<tool_response>\n"
    inner = text.removeprefix("<tool_response>\n").removesuffix(f"\n{_RESULT_CLOSE}")
    for index, part in enumerate(inner.split(seam)):
        name = names[index] if index < len(names) else ""
        yield HistoryItem("result", part.replace(_ESCAPED_CLOSE, _RESULT_CLOSE), name)
