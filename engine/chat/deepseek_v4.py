"""The chat format of DeepSeek V4, live: what is new in a conversation as tokens.

One format serves all generations of the checkpoint; a ``Dialect`` says what differs. Turns are
rendered by ``engine.chat.deepseek_v4_layout``, so a live conversation has the trained layout.
Consecutive user texts and tool results that are rendered together share one user turn.

One thing differs from the trained layout: inside a tool's output the exact text ``</tool_result>``
is written ``&lt;/tool_result>``, and inside an argument the closing parameter tag likewise, so
that no content ends its own frame.
"""

from collections.abc import Iterator, Sequence

from engine.chat.conversation import HeadTurn, OpeningTurn, UserTurn
from engine.chat.deepseek_v4_dialect import (
    CONTROL_TOKENS,
    DEEPSEEK_V4,
    EOS,
    SYSTEM,
    SYSTEM_PLACEHOLDER,
    THINK_END,
    Dialect,
)
from engine.chat.deepseek_v4_history import read_history, read_turns
from engine.chat.deepseek_v4_layout import TurnWriter
from engine.chat.deepseek_v4_turns import DeepseekV4Layout
from engine.chat.dsml_parser import DsmlParser
from engine.chat.format import (
    AssistantClose,
    AssistantOpen,
    HistoryItem,
    Item,
    System,
    ToolResults,
    ToolSpec,
    TurnStart,
    User,
)
from engine.chat.segments import Control, Segment, encode, join
from engine.tokenizer import Tokenizer

_CALL_OPENERS = b"<"


class DeepseekV4Format:
    """The ChatFormat of models whose vocabulary has all of ``CONTROL_TOKENS``."""

    can_think = True

    def __init__(self, tokenizer: Tokenizer, dialect: Dialect = DEEPSEEK_V4) -> None:
        """Look the control tokens up.

        Raises:
            ModelFileError: one is missing.
        """
        name_system_token(tokenizer, dialect)
        self.name = dialect.name
        self.dialect = dialect
        self.layout = DeepseekV4Layout(dialect, escapes_closing_tags=True)
        self._writer = TurnWriter(dialect, escapes_closing_tags=True)
        self._tokenizer = tokenizer
        self._call_beginnings: tuple[int, ...] | None = None  # of the vocabulary, when asked for
        wanted = (*CONTROL_TOKENS, SYSTEM) if dialect.marks_system else CONTROL_TOKENS
        ids = {text: tokenizer.control_id(text) for text in wanted}
        self.stop_ids = frozenset({*tokenizer.eos_ids, ids[EOS]})

    def render(self, items: Sequence[Item]) -> list[int]:
        """Encode the next part of a conversation."""
        return encode(self.segments(items), self._tokenizer)

    def segments(self, items: Sequence[Item]) -> list[Segment]:
        """Render the next part of a conversation as text and control tokens."""
        return join(self._items(items))

    def parser(
        self, tools: Sequence[ToolSpec], thinking: bool, *, is_forced: bool = False
    ) -> DsmlParser:
        """Return a parser for one reply that was opened with or without thinking. Calls always
        have tags here, so whether the reply is forced makes no difference."""
        return DsmlParser(tools, thinking)

    def call_beginnings(self) -> tuple[int, ...]:
        """Token ids by which a call may begin."""
        if self._call_beginnings is None:
            self._call_beginnings = self._tokenizer.ids_beginning_with(_CALL_OPENERS)
        return self._call_beginnings

    def history(self, tokens: Sequence[int], tools: Sequence[ToolSpec]) -> list[HistoryItem]:
        """Read a conversation back, turn by turn, from its token ids."""
        return read_history(tokens, tools, self._tokenizer)

    def turns(self, tokens: Sequence[int]) -> list[TurnStart]:
        """Return where the turns begin."""
        return read_turns(tokens, self._tokenizer)

    def _items(self, items: Sequence[Item]) -> Iterator[Segment]:
        parts: list[tuple[bool, str]] = []  # of a user turn that may go on
        for item in items:
            if isinstance(item, ToolResults) and parts and not parts[-1][0]:
                if not self.dialect.merges_results:
                    yield from self._user_turn(parts)
            match item:
                case User(text):
                    parts.append((False, text))
                    continue
                case ToolResults(results):
                    parts += [(True, text) for _, text in results]
                    continue
            yield from self._user_turn(parts)
            yield from self._item(item)
        yield from self._user_turn(parts)

    def _user_turn(self, parts: list[tuple[bool, str]]) -> Iterator[Segment]:
        if parts:
            yield from self._writer.segments(UserTurn(tuple(parts)))
            parts.clear()

    def _item(self, item: Item) -> Iterator[Segment]:
        match item:
            case System(text, tools, effort):
                preamble = "" if effort is None else self.dialect.efforts.preamble(effort)
                yield from self._writer.segments(HeadTurn(text or None, tools, preamble))
            case AssistantOpen(thinking):
                yield from self._writer.segments(OpeningTurn(thinking))
            case AssistantClose(stopped, in_thinking) if not stopped:
                if in_thinking:
                    yield Control(THINK_END)
                yield Control(EOS)


def name_system_token(tokenizer: Tokenizer, dialect: Dialect) -> None:
    """Give V4.1's system token its name where the vocabulary still has the place-holder."""
    if dialect.marks_system and not tokenizer.has_control(SYSTEM):
        if tokenizer.has_control(SYSTEM_PLACEHOLDER):
            tokenizer.name_placeholder(SYSTEM_PLACEHOLDER, SYSTEM)
