"""Reading a DeepSeek V4 conversation back from its token ids, for display.

Turns are told apart by the ids of control tokens, so no text can forge one.
"""

from collections.abc import Iterator, Sequence

from engine.chat.deepseek_v4_dialect import ASSISTANT, BOS, EOS, SYSTEM, THINK, THINK_END, USER
from engine.chat.deepseek_v4_layout import (
    ESCAPED_RESULT_CLOSE,
    RESULT_CLOSE,
    RESULT_OPEN,
    TOOLS_TITLE,
)
from engine.chat.dsml_parser import DsmlParser
from engine.chat.format import (
    CallComplete,
    CallMalformed,
    HistoryItem,
    Text,
    Thinking,
    ToolSpec,
    TurnStart,
)
from engine.tokenizer import Tokenizer

_HEAD_TOKENS = 16  # at the start of a turn: the opening tag of a result is fewer


def read_history(
    tokens: Sequence[int], tools: Sequence[ToolSpec], tokenizer: Tokenizer
) -> list[HistoryItem]:
    """Return the parts of a conversation, oldest first."""
    items: list[HistoryItem] = []
    pending: list[str] = []  # names of the calls that have no result yet
    for opener, body in _turns(tokens, tokenizer):
        if opener == ASSISTANT:
            parts, pending = _read_reply(body, tools, tokenizer)
            items += parts
            continue
        text = _decode(body, tokenizer)
        if opener == USER and pending and text.startswith(RESULT_OPEN):
            items += _read_results(text, pending)
            pending = []
        elif opener == USER:
            items.append(HistoryItem("user", text))
        elif text:
            items.append(HistoryItem("system", text.rpartition(TOOLS_TITLE)[0] or text))
    return items


def read_turns(tokens: Sequence[int], tokenizer: Tokenizer) -> list[TurnStart]:
    """Return where the turns of a conversation begin, oldest first."""
    roles = {BOS: "system", SYSTEM: "system", USER: "user", ASSISTANT: "assistant"}
    openers = _openers(tokenizer)
    starts = []
    for position, token_id in enumerate(tokens):
        role = roles.get(openers.get(token_id, ""), "")
        if role == "user":
            head = _decode(tokens[position + 1 : position + 1 + _HEAD_TOKENS], tokenizer)
            role = "result" if head.startswith(RESULT_OPEN) else role
        if role:
            starts.append(TurnStart(position, role))
    return starts


def _openers(tokenizer: Tokenizer) -> dict[int, str]:
    openers = {tokenizer.control_id(text): text for text in (BOS, USER, ASSISTANT, EOS)}
    if tokenizer.has_control(SYSTEM):
        openers[tokenizer.control_id(SYSTEM)] = SYSTEM
    return openers


def _turns(tokens: Sequence[int], tokenizer: Tokenizer) -> Iterator[tuple[str, list[int]]]:
    """Yield each turn: the token that opened it, and the ids up to the next."""
    openers = _openers(tokenizer)
    opener = ""
    body: list[int] = []
    for token_id in tokens:
        if token_id in openers:
            if opener:
                yield opener, body
            opener, body = openers[token_id], []
            if opener == EOS:
                opener = ""
        elif opener:
            body.append(token_id)
    if opener:
        yield opener, body


def _decode(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    return b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8", "replace")


def _read_reply(
    body: Sequence[int], tools: Sequence[ToolSpec], tokenizer: Tokenizer
) -> tuple[list[HistoryItem], list[str]]:
    think_id, think_end_id = tokenizer.control_id(THINK), tokenizer.control_id(THINK_END)
    is_thinking = bool(body) and body[0] == think_id
    if body and body[0] in (think_id, think_end_id):
        body = body[1:]
    parser = DsmlParser(tools, is_thinking)
    events = [*parser.feed(b"".join(map(tokenizer.token_bytes, body))), *parser.finish()]
    items: list[HistoryItem] = []
    called: list[str] = []
    for role, kind in (("thinking", Thinking), ("assistant", Text)):
        text = "".join(event.text for event in events if isinstance(event, kind))
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
    return items, called


def _read_results(text: str, names: Sequence[str]) -> Iterator[HistoryItem]:
    # The closing tag is escaped inside a result, so this can only be a seam or the end.
    *parts, rest = text.split(RESULT_CLOSE, len(names))
    for index, part in enumerate(parts):
        name = names[index] if index < len(names) else ""
        body = part.removeprefix("\n\n" if index else "").removeprefix(RESULT_OPEN)
        yield HistoryItem("result", body.replace(ESCAPED_RESULT_CLOSE, RESULT_CLOSE), name)
    if rest.strip("\n"):
        yield HistoryItem("user", rest.removeprefix("\n\n"))
