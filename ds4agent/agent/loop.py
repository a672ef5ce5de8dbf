"""One turn: the person's message, then answers and tool results until an answer has no call.

    message -> prefill -> answer -> calls -> results -> prefill -> answer -> ... -> end

However it ends, it ends on a legal boundary: the open answer is closed, every call that the model
wrote has a result, and all of that is in the live state. So the saved state is the conversation.

Three sizes guard the context. An answer leaves ``_closing_reserve`` tokens free, which closing
the turn needs. Results leave ``_answer_reserve`` free, which an answer needs, and are cut to fit.
A message that leaves less is not accepted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ds4agent.agent.answer import Answer, Answering, End
from ds4agent.agent.calls import NOT_EXECUTED, REPEATED, CallOutcome, CallRunner
from ds4agent.agent.compaction import is_full
from ds4agent.agent.conversation import Conversation
from ds4agent.agent.event_stream import EventStream
from ds4agent.agent.guards import (
    MALFORMED_IN_A_ROW,
    REPEATED_CALLS,
    SMALL_MODEL_ROUNDS,
    CallHistory,
)
from ds4agent.agent.mailbox import Mailbox
from ds4agent.agent.meter import Meter, prefill_reporter
from ds4agent.agent.nudges import nudge
from ds4agent.agent.prompt import reminder
from ds4agent.agent.settings import AgentSettings
from ds4agent.events import (
    MessageDelivered,
    Notice,
    Outcome,
    Phase,
    PhaseChanged,
    TurnStarted,
    Usage,
)
from ds4agent.requests import Mode
from engine.chat.format import AssistantClose, AssistantOpen, Item, ToolResults, User

_RESULT_HEAD = 400  # characters of a result that survive an interrupt: the person waits
_CALL_ERROR = "tool_call"  # the name under which the model is told of a call it wrote wrongly


@dataclass(frozen=True, slots=True)
class TurnReport:
    """How a turn ended."""

    outcome: Outcome
    usage: Usage
    error: str = ""  # one line for the person, "" when done


@dataclass(frozen=True, slots=True)
class _Stop:
    """A reason to end the turn before the model does."""

    outcome: Outcome
    error: str


class Turn:
    """Runs one turn of a conversation. Made anew for each."""

    def __init__(
        self,
        conversation: Conversation,
        calls: CallRunner,
        settings: AgentSettings,
        mailbox: Mailbox,
        stream: EventStream,
        look_around: Callable[[], None] = lambda: None,
        make_room: Callable[[bool], bool] | None = None,
        attach: Callable[[str], str] = lambda text: text,
        *,
        keep_results: Callable[[], None] = lambda: None,
        is_small: bool = False,
    ) -> None:
        """Prepare a turn.

        Args:
            conversation: settled or not; the turn begins at its transcript.
            calls: runs what the model calls.
            settings: limits and sampling.
            mailbox: the interrupt, the mode, messages typed meanwhile.
            stream: where events go.
            look_around: called between tokens, for requests that need no pause.
            make_room: shortens the conversation, when the context is nearly full; called with
                whether the model's next answer follows. False when it was interrupted. None: the
                turn ends when the context is full.
            keep_results: called when the model has read results, before it goes on: brings them to
                the disk.
            attach: adds to a message what it mentions.
            is_small: help the model along: the task is repeated after each result, and a call that
                was made before ends the tools: the model is made to answer.
        """
        self._conversation = conversation
        self._calls = calls
        self._settings = settings
        self._mailbox = mailbox
        self._stream = stream
        self._look_around = look_around
        self._make_room = make_room
        self._attach = attach
        self._keep_results = keep_results
        self._thinking = settings.thinking and conversation.chat.can_think
        self._meter = Meter(stream)
        self._answering = Answering(
            conversation, settings.sampling, stream, self._meter, settings.answer_schema
        )
        self._history = CallHistory()
        self._n_malformed = 0  # in a row
        self._is_small = is_small
        self._was_nudged = False
        self._has_changed = False  # a file was changed, or a command run
        self._reminder = ""
        self._has_open_answer = False
        self._is_open_thinking = False
        ctx = conversation.session.ctx
        self._closing_reserve = max(48, min(160, ctx // 16))
        self._answer_reserve = self._closing_reserve + max(32, min(512, ctx // 16))

    def run(self, text: str) -> TurnReport:
        """Deliver a message and let the model work until it is done or stopped.

        An error of the engine is passed on; the caller then calls ``abandon``.
        """
        self._stream.emit(TurnStarted(text))
        self._conversation.drop_open_turn()
        message = self._conversation.render([User(self._attach(text))])
        if self._must_make_room(len(message)) and not self._make_room(False):
            return self._report(_Stop(Outcome.INTERRUPTED, "interrupted"))
        missing = len(message) + self._answer_reserve - self._conversation.n_free
        if missing > 0:
            return self._report(_too_long(len(message), self._conversation.n_free, missing))
        if not self._prefill_and_open(message):
            self._conversation.drop_open_turn()
            self._stream.emit(
                Notice(
                    "Interrupted before the model had read the message; it is no part of the "
                    "conversation. Send it again if it is still wanted.",
                    "warning",
                )
            )
            return self._report(_Stop(Outcome.INTERRUPTED, "interrupted"))
        self._conversation.name_after(text)
        if self._is_small:
            self._reminder = reminder(text)
        for n_rounds in range(1, self._settings.max_rounds + 1):
            in_words = self._is_small and n_rounds > SMALL_MODEL_ROUNDS
            answer = self._answer(in_words=in_words)
            if self._is_going_in_circles(answer):
                if not self._take_back(answer):
                    return self._report(_Stop(Outcome.INTERRUPTED, "interrupted"))
                in_words = True
                answer = self._answer(in_words=True)
            if not answer.calls and not answer.malformed:
                self._conversation.commit()
                may_go_on = not in_words and n_rounds < self._settings.max_rounds
                told = self._nudge(answer, text) if may_go_on else ""
                if not told:
                    return self._report(self._reason_to_end(answer))
                self._stream.emit(Notice(f"The model stopped without a call; it was told: {told}"))
                if not self._prefill_and_open(self._conversation.render([User(told)])):
                    return self._report(_Stop(Outcome.INTERRUPTED, "interrupted"))
                continue
            stop = self._results(answer, is_last=n_rounds == self._settings.max_rounds)
            if stop is not None:
                return self._report(stop)
        raise AssertionError("the last round always stops")

    def abandon(self, error: str) -> TurnReport:
        """Close what an error left open; what cannot be closed is taken back."""
        if self._has_open_answer:
            self._conversation.adopt_generated()
            self._close_answer(has_stop_token=False, in_thinking=self._answering.in_thinking)
            self._conversation.commit()
        return self._report(_Stop(Outcome.ERROR, error))

    # --- answers ------------------------------------------------------------------------------

    def _answer(self, *, in_words: bool = False) -> Answer:
        self._stream.emit(PhaseChanged(Phase.GENERATING))
        room = self._conversation.n_free - self._closing_reserve
        budget = max(1, min(self._settings.max_tokens, room))
        answer = self._answering.run(
            budget,
            self._mailbox.cancel,
            self._look_around,
            thinking=self._is_open_thinking,
            in_words=in_words,
        )
        self._close_answer(answer.has_stop_token, answer.in_thinking)
        return answer

    def _is_going_in_circles(self, answer: Answer) -> bool:
        """Tell whether a small model, which seldom ends by itself, only repeats what it did."""
        if not self._is_small or not answer.calls or answer.end is not End.CALLS:
            return False
        return all(
            self._history.is_pointless(
                call.name, call.arguments, can_change=self._calls.can_change(call.name)
            )
            for _, call in answer.calls
        )

    def _take_back(self, answer: Answer) -> bool:
        """Forget an answer and open it anew; False when that was interrupted."""
        for call_id, call in answer.calls:
            self._calls.skip(call_id, call, REPEATED)
        self._conversation.drop_open_turn()
        return self._prefill_and_open([], thinking=False)

    def _close_answer(self, has_stop_token: bool, in_thinking: bool) -> None:
        """Compute the closing tokens, interrupted or not: the boundary must be legal."""
        close = self._conversation.render([AssistantClose(has_stop_token, in_thinking)])
        self._meter.count_prefill(self._conversation.feed(close))
        self._has_open_answer = False

    def _nudge(self, answer: Answer, task: str) -> str:
        """Return what to tell a model that stopped too early, "" for nothing. Once in a turn."""
        has_form = self._settings.answer_schema is not None  # then this is the answer
        if self._was_nudged or has_form or answer.end is not End.STOPPED:
            return ""
        may_change = self._mailbox.mode is not Mode.PLAN
        told = nudge(
            answer.text,
            task,
            has_changed=self._has_changed,
            is_small=self._is_small and may_change,
        )
        if not told or not self._conversation.tools:
            return ""
        needed = len(self._conversation.render([User(told)])) + self._answer_reserve
        if needed > self._conversation.n_free:
            return ""
        self._was_nudged = True
        return told

    def _reason_to_end(self, answer: Answer) -> _Stop | None:
        match answer.end:
            case End.INTERRUPTED:
                return _Stop(Outcome.INTERRUPTED, "interrupted")
            case End.REPEATING:
                return _Stop(Outcome.LIMIT, "stopped: the model repeats itself")
            case End.TOO_LONG:
                return self._limit_reached()
        if not answer.text.strip():
            where = " after thinking" if self._thinking else ""
            self._stream.emit(Notice(f"The model stopped{where} without an answer", "warning"))
        return None

    def _limit_reached(self) -> _Stop:
        free = self._conversation.n_free
        ctx = self._conversation.session.ctx
        if free <= self._answer_reserve:
            return _Stop(
                Outcome.LIMIT,
                f"the context is full ({ctx - free} of {ctx} tokens). "
                "/compact makes room, /new begins a new conversation, --ctx makes it larger.",
            )
        return _Stop(
            Outcome.LIMIT,
            f"the answer reached the limit of {self._settings.max_tokens} tokens. "
            "Say 'go on', or raise --tokens.",
        )

    # --- calls and results --------------------------------------------------------------------

    def _results(self, answer: Answer, *, is_last: bool) -> _Stop | None:
        """Run the calls of an answer and hand over what came out; say whether the turn ends."""
        outcomes, stop = self._run_calls(answer)
        results = [(outcome.name, outcome.text) for outcome in outcomes]
        results += [(_CALL_ERROR, f"error: {bad.reason}") for bad in answer.malformed]
        if stop is None and is_last:
            stop = _Stop(
                Outcome.LIMIT, f"stopped after {self._settings.max_rounds} rounds of tool calls"
            )
        if stop is not None:
            self._hand_over_shortly(results)
            return stop
        return self._hand_over(results)

    def _run_calls(self, answer: Answer) -> tuple[list[CallOutcome], _Stop | None]:
        outcomes: list[CallOutcome] = []
        stop = self._malformed_stop(answer)
        if answer.end is End.INTERRUPTED:
            stop = _Stop(Outcome.INTERRUPTED, "interrupted")
        for call_id, call in answer.calls:
            if stop is not None:
                reason = NOT_EXECUTED
                if stop.outcome is not Outcome.INTERRUPTED:
                    reason = "not executed: the turn was stopped"
                outcomes.append(self._calls.skip(call_id, call, reason))
                continue
            outcome = self._calls.run(call_id, call)
            self._has_changed = self._has_changed or (
                outcome.ok and not self._calls.only_reads(call.name)
            )
            outcome, stop = self._judge(outcome)
            outcomes.append(outcome)
            if self._mailbox.cancel.is_set():
                stop = _Stop(Outcome.INTERRUPTED, "interrupted")
        return outcomes, stop

    def _malformed_stop(self, answer: Answer) -> _Stop | None:
        if answer.calls or not answer.malformed:
            self._n_malformed = 0
            return None
        if answer.end in (End.TOO_LONG, End.REPEATING):
            return self._reason_to_end(answer)
        self._n_malformed += 1
        if self._n_malformed < MALFORMED_IN_A_ROW:
            return None
        return _Stop(
            Outcome.ERROR,
            f"stopped: the model wrote {self._n_malformed} calls in a row that cannot be run. "
            "Say it in other words, or use a larger model.",
        )

    def _judge(self, outcome: CallOutcome) -> tuple[CallOutcome, _Stop | None]:
        """Add a warning to a result that came before, and stop when warnings do not help."""
        if outcome.refused:
            return outcome, _Stop(
                Outcome.REFUSED,
                f"{outcome.name} needs an approval and nobody is there to give it. "
                "Use --approval auto to allow it.",
            )
        times = self._history.count(
            outcome.name, outcome.arguments, outcome.text, changed=outcome.changed
        )
        if times > REPEATED_CALLS:
            return outcome, _Stop(
                Outcome.ERROR,
                f"stopped: the model made the same {outcome.name} call {times} times and got the "
                "same result. Say what to do differently.",
            )
        if times == REPEATED_CALLS:
            warning = (
                f"\nThis same call gave this same result {times} times. "
                "Do something else, or answer now."
            )
            outcome = CallOutcome(
                outcome.name, outcome.arguments, outcome.text + warning, outcome.ok
            )
        return outcome, None

    def _hand_over(self, results: list[tuple[str, str]]) -> _Stop | None:
        """Give the model the results, and what the person typed meanwhile, and open an answer."""
        typed = self._mailbox.take_queued()
        after: list[Item] = [User(self._attach(typed))] if typed else []
        tokens = self._fitting(results, after)
        if tokens is None:
            if typed:
                self._mailbox.put_back(typed)
            self._hand_over_shortly(results)
            return self._limit_reached()
        if self._must_make_room(len(tokens)):
            return self._hand_over_with_room(tokens, results, typed)
        if not self._prefill_and_open(tokens, are_results=True):
            # The model has read a part of it at most. It gets the short form, which costs nothing.
            if typed:
                self._mailbox.put_back(typed)
            self._hand_over_shortly(results)
            return _Stop(Outcome.INTERRUPTED, "interrupted")
        if typed:
            self._stream.emit(MessageDelivered(typed))
        return None

    def _hand_over_with_room(
        self, tokens: list[int], results: list[tuple[str, str]], typed: str
    ) -> _Stop | None:
        """Give the model the results, shorten what was before them, and open an answer."""
        self._stream.emit(PhaseChanged(Phase.PREFILL))
        report = self._conversation.feed(
            tokens, prefill_reporter(self._stream, len(tokens)), self._mailbox.cancel
        )
        self._meter.count_prefill(report)
        if report.cancelled:
            if typed:
                self._mailbox.put_back(typed)
            self._hand_over_shortly(results)
            return _Stop(Outcome.INTERRUPTED, "interrupted")
        self._conversation.commit()
        self._keep_results()
        if typed:
            self._stream.emit(MessageDelivered(typed))
        if not self._make_room(True) or not self._prefill_and_open([]):
            return _Stop(Outcome.INTERRUPTED, "interrupted")
        return None

    def _must_make_room(self, n_more: int) -> bool:
        return self._make_room is not None and is_full(self._conversation, n_more)

    def _hand_over_shortly(self, results: list[tuple[str, str]]) -> None:
        """Close a turn that was stopped: every call has its result, cut to what is quick."""
        room = self._conversation.n_free
        for limit in (_RESULT_HEAD, 40, 12):
            short = tuple((name, _cut(text, limit)) for name, text in results)
            tokens = self._conversation.render([ToolResults(short)])
            if len(tokens) <= room:
                break
        self._meter.count_prefill(self._conversation.feed(tokens))
        self._conversation.commit()

    def _fitting(self, results: list[tuple[str, str]], after: Sequence[Item]) -> list[int] | None:
        """Render results, the longest cut until an answer still fits; None when that fails."""
        room = self._conversation.n_free - self._answer_reserve
        shown = list(results)
        for _ in range(8):
            name, text = shown[-1]
            last = (name, text + self._reminder) if not after else shown[-1]
            tokens = self._conversation.render([ToolResults((*shown[:-1], last)), *after])
            if len(tokens) <= room:
                return tokens
            i = max(range(len(shown)), key=lambda k: len(shown[k][1]))
            name, text = shown[i]
            # Characters that have to go, at the measured density, with a margin.
            density = max(1.0, sum(len(t) for _, t in shown) / len(tokens))
            keep = len(text) - int((len(tokens) - room) * density * 1.1) - 120
            note = f"\n(cut: {len(text)} characters do not fit into the context; read less)"
            shown[i] = (name, _cut(text, max(keep, 0), note))
        return None

    # --- the live state -----------------------------------------------------------------------

    def _prefill_and_open(
        self, tokens: Sequence[int], *, thinking: bool = True, are_results: bool = False
    ) -> bool:
        """Compute new input and open an answer; False when it was interrupted.

        Results are kept before the answer is opened: the state of a legal place is gone when the
        model has read on.
        """
        self._stream.emit(PhaseChanged(Phase.PREFILL))
        self._is_open_thinking = thinking and self._thinking
        opening = self._conversation.render([AssistantOpen(self._is_open_thinking)])
        wanted = [*tokens] if are_results else [*tokens, *opening]
        report = self._conversation.feed(
            wanted, prefill_reporter(self._stream, len(wanted)), self._mailbox.cancel
        )
        self._meter.count_prefill(report)
        if report.cancelled:
            return False
        self._conversation.commit(n_open=0 if are_results else len(opening))
        if are_results:
            self._keep_results()
            self._meter.count_prefill(self._conversation.feed(opening))
        self._has_open_answer = True
        return True

    def _report(self, stop: _Stop | None) -> TurnReport:
        usage = self._meter.usage(
            len(self._conversation.transcript), self._conversation.session.ctx
        )
        if stop is None:
            return TurnReport(Outcome.DONE, usage)
        return TurnReport(stop.outcome, usage, stop.error)


def _too_long(n_message: int, n_free: int, missing: int) -> _Stop:
    return _Stop(
        Outcome.LIMIT,
        f"the message has {n_message} tokens and {n_free} are free: {missing} too many, an answer "
        "needs room too. Shorten it, begin a new conversation (/new) or start with a larger --ctx.",
    )


def _cut(text: str, limit: int, note: str = " (cut)") -> str:
    return text if len(text) <= limit else text[:limit] + note
