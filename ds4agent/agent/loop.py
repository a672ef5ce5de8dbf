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

from ds4agent.agent import limits
from ds4agent.agent.answer import Answer, Answering, End, new_call_id
from ds4agent.agent.answer_calls import AnswerCalls
from ds4agent.agent.calls import REPEATED, CallRunner
from ds4agent.agent.compaction import is_full
from ds4agent.agent.conversation import Conversation
from ds4agent.agent.equipment import Equipment
from ds4agent.agent.event_stream import EventStream
from ds4agent.agent.fitting import fitting, shortened
from ds4agent.agent.guards import MALFORMED_IN_A_ROW, CallHistory
from ds4agent.agent.mailbox import Mailbox
from ds4agent.agent.meter import Meter, prefill_reporter
from ds4agent.agent.profiles.guide import GO_ON, IN_WORDS, ReplyForm
from ds4agent.agent.settings import AgentSettings
from ds4agent.agent.stop import INTERRUPTED, Stop
from ds4agent.agent.waiting import LeftWaiting, Result, Waiting, told_of
from ds4agent.events import (
    MessageDelivered,
    Notice,
    Outcome,
    Phase,
    PhaseChanged,
    TurnStarted,
    Usage,
)
from engine.chat.format import AssistantClose, AssistantOpen, CallMalformed, Item, ToolResults, User


@dataclass(frozen=True, slots=True)
class TurnReport:
    """How a turn ended."""

    outcome: Outcome
    usage: Usage
    error: str = ""  # one line for the person, "" when done


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
        *,
        keep_results: Callable[[], None] = lambda: None,
        keep_waiting: Callable[[Waiting], bool] = lambda waiting: False,
        equipment: Equipment,
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
            keep_waiting: see ``AnswerCalls``.
            equipment: its profile says how the model is led.
        """
        self._conversation = conversation
        self._calls = calls
        self._settings = settings
        self._mailbox = mailbox
        self._stream = stream
        self._look_around = look_around
        self._make_room = make_room
        self._keep_results = keep_results
        self._thinking = settings.thinking and conversation.chat.can_think
        self._meter = Meter(stream)
        self._profile = equipment.profile
        ctx = conversation.session.ctx
        self._guide = equipment.guide(calls, mailbox, stream, ctx)
        self._answering = Answering(
            conversation,
            settings.sampling,
            stream,
            self._meter,
            settings.answer_schema,
            equipment.understood,
        )
        self._history = CallHistory()
        self._answer_calls = AnswerCalls(calls, self._history, mailbox.cancel, keep_waiting)
        self._n_malformed = 0  # in a row
        self._was_nudged = False
        self._added = ""  # what follows the next results
        self._has_open_answer = False
        self._is_open_thinking = False
        self._closing_reserve = max(48, min(160, ctx // 16))
        self._answer_reserve = self._closing_reserve + max(32, min(512, ctx // 16))

    def run(self, text: str) -> TurnReport:
        """Deliver a message and let the model work until it is done or stopped.

        An error of the engine is passed on; the caller then calls ``abandon``.
        """
        self._stream.emit(TurnStarted(text))
        self._conversation.drop_open_turn()
        message = self._conversation.render([*self._skipped(), User(self._guide.begin(text))])
        if self._must_make_room(len(message)) and not self._make_room(False):
            return self._report(INTERRUPTED)
        missing = len(message) + self._answer_reserve - self._conversation.n_free
        if missing > 0:
            told = limits.long_message(len(message), self._conversation.n_free, missing)
            return self._report(Stop(Outcome.LIMIT, told))
        if not self._prefill_and_open(message):
            self._conversation.drop_open_turn()
            self._stream.emit(
                Notice(
                    "Interrupted before the model had read the message; it is no part of the "
                    "conversation. Send it again if it is still wanted.",
                    "warning",
                )
            )
            return self._report(INTERRUPTED)
        self._conversation.name_after(text)
        return self._rounds()

    def resume(self, task: str) -> TurnReport:
        """Go on with the calls that had no result when the conversation was saved.

        Args:
            task: the person's last message, which the conversation has already.
        """
        self._stream.emit(TurnStarted(""))
        waiting = self._conversation.waiting
        assert waiting is not None
        self._guide.begin(task)
        answer = Answer(End.CALLS, calls=[(new_call_id(), call) for call in waiting.calls])
        answer.malformed = [CallMalformed(reason, "") for reason in waiting.malformed]
        return self._rounds(answer, waiting)

    def _rounds(
        self, waiting_answer: Answer | None = None, waiting: Waiting | None = None
    ) -> TurnReport:
        form = self._guide.form()
        for n_rounds in range(1, self._settings.max_rounds + 1):
            if n_rounds > (self._profile.max_call_rounds or n_rounds):
                form = IN_WORDS
            answer = waiting_answer or self._answer(form)
            if waiting is None and self._is_going_in_circles(answer):
                if not self._take_back(answer):
                    return self._report(INTERRUPTED)
                form = IN_WORDS
                answer = self._answer(form)
            if not answer.calls and not answer.malformed:
                self._conversation.commit()
                may_go_on = not form.in_words and n_rounds < self._settings.max_rounds
                told = self._nudge(answer) if may_go_on else ""
                if not told:
                    return self._report(self._reason_to_end(answer))
                self._stream.emit(Notice(f"The model stopped without a call; it was told: {told}"))
                if not self._prefill_and_open(self._conversation.render([User(told)])):
                    return self._report(INTERRUPTED)
            else:
                is_last = n_rounds == self._settings.max_rounds
                stop = self._results(answer, waiting, is_last=is_last)
                waiting_answer = waiting = None
                if stop is not None:
                    return self._report(stop)
            form = self._guide.form()
        raise AssertionError("the last round always stops")

    def abandon(self, error: str) -> TurnReport:
        """Close what an error left open; what cannot be closed is taken back."""
        if self._has_open_answer:
            self._conversation.adopt_generated()
            self._close_answer(has_stop_token=False, in_thinking=self._answering.in_thinking)
            self._conversation.commit()
        return self._report(Stop(Outcome.ERROR, error))

    # --- answers ------------------------------------------------------------------------------

    def _answer(self, form: ReplyForm) -> Answer:
        self._stream.emit(PhaseChanged(Phase.GENERATING))
        room = self._conversation.n_free - self._closing_reserve
        budget = max(1, min(self._settings.max_tokens, room))
        answer = self._answering.run(
            budget,
            self._mailbox.cancel,
            self._look_around,
            thinking=self._is_open_thinking,
            form=form,
        )
        self._close_answer(answer.has_stop_token, answer.in_thinking)
        return answer

    def _is_going_in_circles(self, answer: Answer) -> bool:
        """Tell whether a small model, which seldom ends by itself, only repeats what it did."""
        takes_back = self._profile.takes_back_repeats and answer.end is End.CALLS
        if not takes_back or not answer.calls:
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

    def _nudge(self, answer: Answer) -> str:
        """Return what to tell a model that stopped too early, "" for nothing. Once in a turn."""
        has_form = self._settings.answer_schema is not None  # then this is the answer
        if self._was_nudged or has_form or answer.end is not End.STOPPED:
            return ""
        told = self._guide.nudge(answer.text)
        if not told or not self._conversation.tools:
            return ""
        needed = len(self._conversation.render([User(told)])) + self._answer_reserve
        if needed > self._conversation.n_free:
            return ""
        self._was_nudged = True
        return told

    def _reason_to_end(self, answer: Answer) -> Stop | None:
        match answer.end:
            case End.INTERRUPTED:
                return INTERRUPTED
            case End.REPEATING:
                return Stop(Outcome.LIMIT, "stopped: the model repeats itself")
            case End.TOO_LONG:
                return self._limit_reached()
        if not answer.text.strip():
            where = " after thinking" if self._thinking else ""
            self._stream.emit(Notice(f"The model stopped{where} without an answer", "warning"))
        return None

    def _limit_reached(self) -> Stop:
        session, n_free = self._conversation.session, self._conversation.n_free
        if n_free <= self._answer_reserve:
            return Stop(Outcome.LIMIT, limits.full(session.ctx - n_free, session.ctx))
        return Stop(Outcome.LIMIT, limits.long_answer(self._settings.max_tokens))

    # --- calls and results --------------------------------------------------------------------

    def _skipped(self) -> list[Item]:
        """Return results for calls that were waiting when the conversation was saved: they are not
        run any more, and the model must not see a call without one."""
        waiting = self._conversation.waiting
        if waiting is None:
            return []
        for call, reason in waiting.not_run:
            self._calls.skip(new_call_id(), call, reason)
        return [ToolResults(tuple(waiting.results()))]

    def _results(self, answer: Answer, waiting: Waiting | None, *, is_last: bool) -> Stop | None:
        """Run the calls of an answer and hand over what came out; say whether the turn ends."""
        try:
            stop = INTERRUPTED if answer.end is End.INTERRUPTED else self._malformed_stop(answer)
            outcomes, stop = self._answer_calls.run(answer, waiting, stop)
        except LeftWaiting:
            self._conversation.commit()  # as it is on the disk
            return Stop(Outcome.INTERRUPTED, "the question is asked again with --continue")
        after = self._guide.after(outcomes) if stop is None else GO_ON
        if self._mailbox.cancel.is_set():  # meanwhile
            stop = stop or INTERRUPTED
        results = [(outcome.name, outcome.text) for outcome in outcomes]
        results += told_of(bad.reason for bad in answer.malformed)
        if stop is None and is_last:
            stop = Stop(
                Outcome.LIMIT, f"stopped after {self._settings.max_rounds} rounds of tool calls"
            )
        if stop is not None:
            self._hand_over_shortly(results)
            return stop
        if after.retry is not None and self._start_over(after.retry):
            return INTERRUPTED if self._mailbox.cancel.is_set() else None
        if after.ends:
            self._hand_over_shortly(results)
            return Stop(Outcome.DONE, "")
        self._added = after.added
        return self._hand_over(results)

    def _start_over(self, told: str) -> bool:
        """Forget an answer and what came of its calls, and tell the model something instead; False
        when there is no room for it."""
        message = self._conversation.render([User(told)] if told else [])
        self._conversation.drop_open_turn()
        if len(message) + self._answer_reserve > self._conversation.n_free:
            self._conversation.adopt_generated()
            return False
        self._prefill_and_open(message)
        return True

    def _malformed_stop(self, answer: Answer) -> Stop | None:
        if answer.calls or not answer.malformed:
            self._n_malformed = 0
            return None
        if answer.end in (End.TOO_LONG, End.REPEATING):
            return self._reason_to_end(answer)
        self._n_malformed += 1
        if self._n_malformed < MALFORMED_IN_A_ROW:
            return None
        return Stop(
            Outcome.ERROR,
            f"stopped: the model wrote {self._n_malformed} calls in a row that cannot be run. "
            "Say it in other words, or use a larger model.",
        )

    def _hand_over(self, results: list[Result]) -> Stop | None:
        """Give the model the results, and what the person typed meanwhile, and open an answer."""
        typed = self._mailbox.take_queued()
        after: list[Item] = [User(self._guide.attach(typed))] if typed else []
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
            return INTERRUPTED
        if typed:
            self._stream.emit(MessageDelivered(typed))
        return None

    def _hand_over_with_room(
        self, tokens: list[int], results: list[Result], typed: str
    ) -> Stop | None:
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
            return INTERRUPTED
        self._conversation.commit()
        self._keep_results()
        if typed:
            self._stream.emit(MessageDelivered(typed))
        if not self._make_room(True) or not self._prefill_and_open([]):
            return INTERRUPTED
        return None

    def _must_make_room(self, n_more: int) -> bool:
        return self._make_room is not None and is_full(self._conversation, n_more)

    def _hand_over_shortly(self, results: list[Result]) -> None:
        """Close a turn that was stopped: every call has its result, cut to what is quick."""
        tokens = shortened(self._conversation.render, results, self._conversation.n_free)
        self._meter.count_prefill(self._conversation.feed(tokens))
        self._conversation.commit()

    def _fitting(self, results: Sequence[Result], after: Sequence[Item]) -> list[int] | None:
        room = self._conversation.n_free - self._answer_reserve
        return fitting(self._conversation.render, results, after, self._added, room)

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

    def _report(self, stop: Stop | None) -> TurnReport:
        usage = self._meter.usage(
            len(self._conversation.transcript), self._conversation.session.ctx
        )
        if stop is None:
            return TurnReport(Outcome.DONE, usage)
        return TurnReport(stop.outcome, usage, stop.error)
