"""Making room: the beginning of a conversation becomes a summary, its end stays word for word.

    head | ................ old turns ................ | last turns
    head | note: summary, messages, changed files      | last turns

The model writes the summary itself, from the live state, so that costs only the request and the
answer. What must not depend on a model's diligence is added from the tokens: what the person
wrote, which files were changed, and the message in progress, word for word. The note says that
it is history: an old message must not be taken for a new one.

A tail is cut only where a person's or the model's turn begins, never between a call and its
result. Until the new state is complete, the old one can come back without being computed again.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

from ds4agent.agent.conversation import Conversation
from ds4agent.agent.event_stream import EventStream
from ds4agent.agent.meter import Meter, prefill_reporter
from ds4agent.errors import Ds4Error
from ds4agent.events import Compacted, Phase, PhaseChanged
from engine.chat.format import AssistantClose, AssistantOpen, HistoryItem, Text, TurnStart, User
from engine.chat.segments import encode
from engine.sampling_options import SamplingOptions
from engine.state import SessionState

FULL_AT = 0.85  # of the context: then room is made unasked
_SUMMARY_TOKENS = 4096  # the longest summary
_LEAST_SUMMARY_TOKENS = 128  # with less room than this it is not tried
_LEAST_SUMMARY_CHARS = 40  # less is none
_TAIL_SHARE = 8  # the tail takes at most one part in so many of the context ...
_LAST_STEP_SHARE = 0.45  # ... but the last step, with its results, may take this share
_WORTH = 0.75  # of the tokens after the head: a compaction that leaves more has made no room
_MESSAGE_CHARS = 300  # of an older message in the list of what the person wrote
_N_MESSAGES = 20  # the newest, in that list
_N_FILES = 40
_CHANGING_TOOLS = ("write", "edit", "multi_edit")
_PLANNING_TOOL = "todo"
_MARK = (
    "[The conversation up to here was shortened to make room. What follows is its history. "
    "It is no new instruction.]"
)
_MESSAGES = "What the person wrote, oldest first:"
_FILES = "Files changed so far:"
_PLAN = "The list of steps as it stands:"
_IN_PROGRESS = "[The message that is being worked on now, word for word:]"
_BULLET = "- "
_ACKNOWLEDGED = "I have read the summary and go on from there."


class CompactionError(Ds4Error):
    """The conversation could not be made shorter. It is as it was."""


class CompactionCancelled(Exception):
    """The person interrupted it. The conversation is as it was."""


def is_full(conversation: Conversation, n_more: int = 0) -> bool:
    """Tell whether the context, with ``n_more`` tokens added, is so full that room must be made.

    Not again before an eighth of the context was used since the last time: what cannot be made
    shorter would be summarised for ever.
    """
    ctx = conversation.session.ctx
    n_tokens = conversation.n_tokens + n_more
    has_grown = n_tokens >= conversation.compacted_tokens + ctx // 8
    return n_tokens >= FULL_AT * ctx and (has_grown or not conversation.compacted_tokens)


@dataclass(frozen=True, slots=True)
class _Tail:
    """The last turns, kept word for word."""

    start: int  # position of the first token; the end of the transcript for none
    role: str  # of its first turn, "" for none


class Compaction:
    """Replaces the tokens of one conversation."""

    def __init__(
        self,
        conversation: Conversation,
        stream: EventStream,
        cancel: threading.Event,
        head_state: SessionState | None = None,
    ) -> None:
        """Prepare.

        Args:
            conversation: at a legal boundary; what is open is dropped.
            stream: where the progress goes.
            cancel: looked at between tokens and chunks.
            head_state: the state of the head, so that it need not be computed again.
        """
        self._conversation = conversation
        self._chat = conversation.chat
        self._stream = stream
        self._cancel = cancel
        self._head_state = head_state

    def run(self, *, in_turn: bool, kept_id: str = "", wish: str = "") -> Compacted:
        """Make the conversation shorter.

        Args:
            in_turn: the model is at work: its next answer follows. Otherwise the person's.
            kept_id: the saved conversation that holds what was before, "" when none does.
            wish: what the person wants the summary to dwell on.

        Returns:
            What came of it. The conversation holds the new tokens, committed.

        Raises:
            CompactionCancelled: interrupted.
            CompactionError: it would make no room.
        """
        start_s = time.monotonic()
        conversation = self._conversation
        conversation.settle()
        before = conversation.session.state()
        n_before = len(conversation.transcript)
        try:
            self._stream.emit(PhaseChanged(Phase.COMPACTING))
            summary = self._summary(wish)
            tokens = self._shortened(summary, in_turn=in_turn)
            n_head = len(conversation.head)
            if len(tokens) - n_head > _WORTH * (n_before - n_head):
                raise CompactionError(
                    f"compacting would leave {len(tokens)} of {n_before} tokens: no room is made",
                    "Begin a new conversation (/new), or start with a larger --ctx.",
                )
            self._rebuild(tokens)
        except BaseException:
            conversation.session.load(before, consume=True)
            conversation.drop_open_turn()
            raise
        return Compacted(
            summary, n_before, len(tokens), kept_id, round(time.monotonic() - start_s, 3)
        )

    # --- the summary --------------------------------------------------------------------------

    def _summary(self, wish: str) -> str:
        """Let the model write it; "" when there is no room for that or it wrote nothing."""
        conversation = self._conversation
        request = files("ds4agent.agent").joinpath("prompts", "compact.md").read_text("utf-8")
        if wish:
            request += f"Pay attention to: {wish}\n"
        opening = conversation.render([User(request.strip()), AssistantOpen(thinking=False)])
        room = conversation.n_free - len(opening) - 1
        if room < _LEAST_SUMMARY_TOKENS:
            return ""
        session = conversation.session
        report = session.sync([*conversation.transcript, *opening], cancel=self._cancel)
        if report.cancelled:
            raise CompactionCancelled
        parser = self._chat.parser((), thinking=False)
        meter = Meter(self._stream)
        meter.begin_round(conversation.n_tokens + len(opening))
        parts: list[str] = []
        generation = session.generate(
            SamplingOptions(temperature=0.0, repeat_penalty=1.05),
            min(_SUMMARY_TOKENS, room),
            self._cancel,
            self._chat.call_beginnings(),
        )
        for token in generation:
            meter.count_token()
            if token.is_stop:
                break
            parts += [event.text for event in parser.feed(token.data) if isinstance(event, Text)]
            if parser.finished:
                break
        generation.close()
        if self._cancel.is_set():
            raise CompactionCancelled
        parts += [event.text for event in parser.finish() if isinstance(event, Text)]
        summary = "".join(parts).strip()
        return summary if len(summary) >= _LEAST_SUMMARY_CHARS else ""

    # --- the new tokens -----------------------------------------------------------------------

    def _shortened(self, summary: str, *, in_turn: bool) -> list[int]:
        conversation = self._conversation
        transcript = conversation.transcript
        tail = self._tail(in_turn=in_turn)
        before = self._chat.history(transcript[: tail.start], conversation.tools)
        # A person's message in the tail is there word for word; otherwise it goes into the note.
        is_answered = tail.role == "user" or not in_turn
        tokens = [
            *conversation.head,
            *conversation.render([User(_note(summary, before, is_answered=is_answered))]),
        ]
        if tail.role == "user" or (not tail.role and not in_turn):
            tokens += conversation.render([AssistantOpen(thinking=False)])
            tokens += encode([_ACKNOWLEDGED], conversation.session.tokenizer)
            tokens += conversation.render([AssistantClose(stopped=False)])
        return [*tokens, *transcript[tail.start :]]

    def _tail(self, *, in_turn: bool) -> _Tail:
        """Choose the longest tail in budget; within a turn else the last step, which the model
        has not seen the results of yet, if that is not too long."""
        conversation = self._conversation
        n_tokens, ctx = len(conversation.transcript), conversation.session.ctx
        starts = _places(self._chat.turns(conversation.transcript), len(conversation.head))
        budget = ctx // _TAIL_SHARE
        for start in starts:
            if n_tokens - start.position <= budget:
                return _Tail(start.position, start.role)
        if in_turn and starts and n_tokens - starts[-1].position <= _LAST_STEP_SHARE * ctx:
            return _Tail(starts[-1].position, starts[-1].role)
        return _Tail(n_tokens, "")

    def _rebuild(self, tokens: Sequence[int]) -> None:
        conversation = self._conversation
        session = conversation.session
        if self._head_state is not None:
            session.load(replace(self._head_state, arrays=dict(self._head_state.arrays)))
        n_new = len(tokens) - session.common_prefix(tokens)
        self._stream.emit(PhaseChanged(Phase.COMPACTING, "reading the summary"))
        report = session.sync(tokens, prefill_reporter(self._stream, n_new), self._cancel)
        if report.cancelled:
            raise CompactionCancelled
        conversation.restart_at(tokens)


def _places(turns: Sequence[TurnStart], n_head: int) -> list[TurnStart]:
    """Return where a tail may begin: a message of the person, or a step of the model."""
    return [
        turn for turn in turns if turn.position >= n_head and turn.role in ("user", "assistant")
    ]


def _note(summary: str, before: Sequence[HistoryItem], *, is_answered: bool) -> str:
    """Write what stands for the turns that are gone."""
    messages: list[str] = []
    changed: list[str] = []
    plan: list[str] = []
    for item in before:
        if item.role == "user" and item.text.startswith(_MARK):
            older_messages, older_files, plan = _read_note(item.text)
            messages += older_messages
            changed += older_files
        elif item.role == "user":
            messages.append(item.text)
        elif item.role == "call" and item.name in _CHANGING_TOOLS and item.arguments:
            changed.append(str(item.arguments.get("path", "")))
        elif item.role == "call" and item.name == _PLANNING_TOOL and item.arguments:
            plan = _steps(item.arguments.get("items"))
    in_progress = "" if is_answered or not messages else messages.pop()
    parts = [_MARK]
    if summary:
        parts.append(f"Summary:\n{summary}")
    if messages:
        lines = [f"{_BULLET}{_on_one_line(text)}" for text in messages[-_N_MESSAGES:]]
        parts.append("\n".join([_MESSAGES, *lines]))
    if changed:
        names = list(dict.fromkeys(changed))[-_N_FILES:]
        parts.append("\n".join([_FILES, *(f"{_BULLET}{name}" for name in names)]))
    if plan:
        parts.append("\n".join([_PLAN, *(f"{_BULLET}{step}" for step in plan)]))
    if in_progress:
        parts.append(f"{_IN_PROGRESS}\n{in_progress}")
    return "\n\n".join(parts)


def _steps(items: object) -> list[str]:
    """Return the steps of a plan, one a line, as far as a call's arguments hold any."""
    steps = items if isinstance(items, list) else []
    return [
        f"{step.get('status', '')}: {_on_one_line(str(step.get('text', '')))}"
        for step in steps
        if isinstance(step, dict)
    ]


def _read_note(note: str) -> tuple[list[str], list[str], list[str]]:
    """Return the messages, the files and the plan that an earlier note has told of."""
    told, _, in_progress = note.partition(f"\n\n{_IN_PROGRESS}\n")
    found: dict[str, list[str]] = {_MESSAGES: [], _FILES: [], _PLAN: []}
    for part in told.split("\n\n"):
        head, *lines = part.split("\n")
        if head in found:
            found[head] = [line.removeprefix(_BULLET) for line in lines]
    messages = found[_MESSAGES]
    messages = [*messages, in_progress] if in_progress else messages
    return messages, found[_FILES], found[_PLAN]


def _on_one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MESSAGE_CHARS else line[: _MESSAGE_CHARS - 1] + "…"
