"""One answer of the model: sample, parse the bytes as they come, tell the screen, stop in time."""

import itertools
import json
import re
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ds4agent.agent.answer_form import ReplyForms
from ds4agent.agent.conversation import Conversation
from ds4agent.agent.event_stream import EventStream
from ds4agent.agent.guards import RepetitionWatch
from ds4agent.agent.meter import Meter
from ds4agent.agent.profiles.guide import ReplyForm
from ds4agent.events import MalformedCall, ToolCallStarted
from engine.chat.file_blocks import FileBlockParser
from engine.chat.format import (
    CallArguments,
    CallComplete,
    CallMalformed,
    CallStarted,
    ParserEvent,
    StreamParser,
    Text,
    Thinking,
    ToolCall,
    ToolSpec,
)
from engine.chat.reply_rule import ReplyRule
from engine.sampling_options import SamplingOptions
from engine.state import Token
from tools.write import WriteTool

# Sampling once an answer has begun to repeat: both make the likeliest token lose sometimes.
_SHAKEN_TEMPERATURE = 0.7
_SHAKEN_PENALTY = 1.3
_FENCE = re.compile(r"\A```\w*\s*|\s*```\Z")

_numbers = itertools.count(1)


class End(StrEnum):
    """Why an answer ended."""

    STOPPED = "stopped"  # by the model
    CALLS = "calls"  # the calls are complete
    INTERRUPTED = "interrupted"
    TOO_LONG = "too long"
    REPEATING = "repeating"


@dataclass(slots=True)
class Answer:
    """What came out of it."""

    end: End = End.STOPPED
    text: str = ""
    calls: list[tuple[str, ToolCall]] = field(default_factory=list)  # (call id, call), in order
    malformed: list[CallMalformed] = field(default_factory=list)
    has_stop_token: bool = False  # the model sampled its own end-of-turn token
    in_thinking: bool = False  # it ended inside unclosed thinking


def new_call_id() -> str:
    """Return the name of a call that no other has in this process."""
    return f"call-{next(_numbers)}"


class CallIds:
    """Names for calls, unique in this process."""

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}

    def of(self, index: int) -> tuple[str, bool]:
        """Return the id of the answer's ``index``-th call, and whether it is new."""
        is_new = index not in self._ids
        if is_new:
            self._ids[index] = new_call_id()
        return self._ids[index], is_new


class Answering:
    """Produces answers for one conversation."""

    def __init__(
        self,
        conversation: Conversation,
        sampling: SamplingOptions,
        stream: EventStream,
        meter: Meter,
        answer_schema: dict[str, Any] | None = None,
        understood: tuple[ToolSpec, ...] = (),
    ) -> None:
        """Prepare answers.

        Args:
            conversation: what they continue.
            sampling: how tokens are chosen.
            stream: told as they come.
            meter: counts them.
            answer_schema: JSON schema that each answer is forced into.
            understood: tools that may be called though the model is not told of them.
        """
        self._conversation = conversation
        self._sampling = sampling
        self._stream = stream
        self._meter = meter
        self._parser: StreamParser | None = None
        self._understood = understood
        self._schema = answer_schema
        self._forms = ReplyForms(conversation)

    @property
    def in_thinking(self) -> bool:
        """True when the last answer, ended or broken off, is inside unclosed thinking."""
        return self._parser is not None and self._parser.in_thinking

    def run(
        self,
        max_tokens: int,
        cancel: threading.Event,
        look_around: Callable[[], None],
        *,
        thinking: bool,
        form: ReplyForm,
    ) -> Answer:
        """Sample one answer of at most ``max_tokens``; its tokens are then in the conversation.

        ``look_around`` is called between tokens. ``thinking``: how the answer was opened.
        ``form``: what it must be.
        """
        chat = self._conversation.chat
        in_words = form.in_words
        tools = () if in_words else self._conversation.tools
        rule = form.rule
        if self._schema is not None:
            rule = ReplyRule(tuple(tools), answer_schema=self._schema)
        is_forced = rule is not None
        understood = tools if in_words or is_forced else (*tools, *self._understood)
        parser = chat.parser(understood, thinking, is_forced=is_forced)
        if form.has_files and self._schema is None:
            parser = FileBlockParser(
                parser, WriteTool.name, known=rule.files if rule is not None else ()
            )
        self._parser = parser
        # A rule without tools has no calls, and JSON may begin as a call does.
        grammar = self._forms.start(replace(rule, thinking=thinking)) if rule is not None else None
        not_first = chat.call_beginnings() if in_words and not is_forced else ()
        answer, ids, watch = Answer(), CallIds(), RepetitionWatch()
        options = _tried_again(self._sampling) if form.is_shaken else self._sampling
        self._meter.begin_round(self._conversation.n_tokens)
        left = max_tokens
        answer.end = End.TOO_LONG
        was_shaken = False
        while left > 0 and answer.end is End.TOO_LONG:
            is_shaken = False
            with closing(
                self._conversation.session.generate(
                    options,
                    left,
                    cancel,
                    not_first,
                    grammar=grammar,
                    is_greedy=lambda: parser.syntax.is_greedy,
                )
            ) as tokens:
                for token in tokens:
                    left -= 1
                    self._take(token, parser, answer, ids)
                    watch.add(token.id, token.data)
                    repeated = watch.repeated_tokens()
                    if answer.has_stop_token:
                        answer.end = End.STOPPED
                    elif parser.finished:
                        answer.end = End.CALLS
                    elif watch.is_hopeless(repeated):
                        answer.end = End.REPEATING
                    elif repeated and not was_shaken:
                        is_shaken = True
                    # An interrupt wins over a call that was just completed: it must not run.
                    if cancel.is_set():
                        answer.end = End.INTERRUPTED
                    if answer.end is not End.TOO_LONG or is_shaken:
                        break
                    look_around()
            if cancel.is_set() and answer.end is End.TOO_LONG:
                answer.end = End.INTERRUPTED
            if not is_shaken:
                break
            options, not_first, was_shaken = _shaken(options), (), True
        # The last token is consumed when the generator closes, so only now is all of it there.
        self._conversation.adopt_generated()
        self._meter.end_round()
        answer.in_thinking = parser.in_thinking
        for event in parser.finish(stopped=answer.has_stop_token):
            self._show(event, answer, ids)
        is_plain = not (answer.calls or answer.malformed or in_words or is_forced)
        if is_plain and answer.end is End.STOPPED:
            self._object_to_unknown_tool(answer)
        return answer

    def _object_to_unknown_tool(self, answer: Answer) -> None:
        """A reply that is nothing but a call of a tool that does not exist is no answer."""
        name = _bare_call_name(answer.text)
        if name and self._conversation.tools:
            known = ", ".join(tool.name for tool in self._conversation.tools)
            reason = f"there is no tool {name!r}; the tools are: {known}"
            answer.malformed.append(CallMalformed(reason, answer.text))
            self._stream.emit(MalformedCall(reason, answer.text))

    def _take(self, token: Token, parser: StreamParser, answer: Answer, ids: CallIds) -> None:
        if token.is_stop:
            answer.has_stop_token = True
        else:
            for event in parser.feed(token.data):
                self._show(event, answer, ids)
        self._meter.count_token()

    def _show(self, event: ParserEvent, answer: Answer, ids: CallIds) -> None:
        match event:
            case Text(text):
                answer.text += text
                self._stream.text(text)
            case Thinking(text):
                self._stream.thinking(text)
            case CallStarted(index, name):
                self._call_id(ids, index, name)
            case CallArguments(index, text):
                self._stream.call_text(self._call_id(ids, index, ""), text)
            case CallComplete(index, call):
                answer.calls.append((self._call_id(ids, index, call.name), call))
            case CallMalformed(reason, raw):
                # Cut off by the person, it is no mistake of the model.
                if answer.end is not End.INTERRUPTED:
                    answer.malformed.append(event)
                    self._stream.emit(MalformedCall(reason, raw))

    def _call_id(self, ids: CallIds, index: int, name: str) -> str:
        call_id, is_new = ids.of(index)
        if is_new:
            self._stream.emit(ToolCallStarted(call_id, name))
        return call_id


def _bare_call_name(text: str) -> str:
    """Return the tool's name when a whole text is a call object, fenced or not, else ""."""
    body = _FENCE.sub("", text.strip())
    if not body.startswith("{"):
        return ""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):  # the latter: brackets nested a thousand deep
        return ""
    is_call = set(value) == {"name", "arguments"} and isinstance(value["name"], str)
    return value["name"] if is_call else ""


def _tried_again(options: SamplingOptions) -> SamplingOptions:
    """Sample less likely tokens, in the same way each time."""
    seed = options.seed if options.seed is not None else 1
    temperature = max(options.temperature, _SHAKEN_TEMPERATURE)
    return replace(options, temperature=temperature, seed=seed)


def _shaken(options: SamplingOptions) -> SamplingOptions:
    return replace(
        options,
        temperature=max(options.temperature, _SHAKEN_TEMPERATURE),
        repeat_penalty=max(options.repeat_penalty, _SHAKEN_PENALTY),
    )
