"""One answer: read the prompt, sample, parse what comes, hand it on, and remember it."""

import logging
from collections.abc import Callable
from contextlib import closing

from ds4agent.server.api.errors import ApiError, context_exceeded
from ds4agent.server.api.gathered import Gathered, joined
from ds4agent.server.api.output import Finish, Piece, Usage
from ds4agent.server.api.reading import ReplyReader
from ds4agent.server.job import Began, Ended, Failed, Job, Pieces
from ds4agent.server.outbox import Outbox
from ds4agent.server.reuse import Ready, Reuse
from ds4agent.server.shared_replay import SharedReplay
from engine.chat.conversation import Call, Message
from engine.chat.format import AssistantClose, CallComplete
from engine.chat.stop_sequences import StopSequences
from engine.chat.syntax import Syntax
from engine.engine import Engine
from engine.sampling_options import SamplingOptions
from engine.session import Generation

_log = logging.getLogger(__name__)


class Answerer:
    """Answers requests one by one. Belongs to the engine's thread."""

    def __init__(
        self,
        engine: Engine,
        reuse: Reuse,
        replay: SharedReplay,
        next_continued: Callable[[int], int],
        read: Callable[[int], None],
    ) -> None:
        """Prepare.

        Args:
            engine: The model.
            reuse: The states.
            replay: Gets every completed call.
            next_continued: Tokens of the next checkpoint of a state with so many; 0: none.
            read: Called with the tokens read in each chunk.
        """
        self._engine = engine
        self._reuse = reuse
        self._replay = replay
        self._next_continued = next_continued
        self._read = read

    def answer(self, job: Job) -> tuple[Finish | None, Ready | None, Usage | None]:
        """Answer a request into its outbox.

        Returns:
            Why the answer ended, what its prompt cost and all of its tokens; None where it did not
            get so far.
        """
        cancel = job.outbox.cancel
        if cancel.is_set():
            return None, None, None
        if job.prompt is None:
            ready = self._reuse.prepare_results(list(job.results), self._read, cancel)
            if ready is None:
                job.outbox.put(Failed(_gone()))
                return None, None, None
        else:
            n_prompt, ctx = len(job.prompt.ids), self._engine.info.ctx
            if n_prompt >= ctx:
                job.outbox.put(Failed(context_exceeded(job.request.api, n_prompt, ctx)))
                return None, None, None
            ready = self._reuse.prepare(job.prompt, self._read, cancel)
        if ready.cancelled:
            return None, ready, None
        for live in self._reuse.live:
            if live is ready.live:
                live.forget_calls()
        job.outbox.put(Began(Usage(ready.n_prompt, ready.n_cached)))
        finish, usage = self._generate(job, ready)
        return finish, ready, usage

    def _generate(self, job: Job, ready: Ready) -> tuple[Finish, Usage]:
        request, chat = job.request, self._engine.chat
        sampling = request.sampling
        options = SamplingOptions(
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            seed=sampling.seed,
        )
        inner = chat.parser(
            request.callable_tools, request.thinking, is_forced=job.grammar is not None
        )
        parser = StopSequences(inner, request.stop)
        reader = ReplyReader(request.api, streams=request.stream)
        teller = _Teller(job.outbox, streams=request.stream)
        limit = request.output_limit(ready.n_prompt, self._engine.info.ctx)
        session = ready.live.session
        n_sampled = n_thinking = 0
        has_stop_token = False
        due = self._next_continued(ready.n_prompt)
        tokens = session.generate(
            options,
            limit,
            job.outbox.cancel,
            grammar=job.grammar,
            is_greedy=lambda: parser.syntax.is_greedy,
        )
        with closing(tokens):
            for token in tokens:
                n_sampled += 1
                n_thinking += parser.in_thinking
                if token.is_stop:
                    has_stop_token = True
                    break
                events = parser.feed(token.data)
                teller.tell(reader.take(events))
                if parser.finished or self._is_enough(request.parallel_calls, events):
                    break
                n_tokens = ready.n_prompt + n_sampled
                if due and n_tokens >= due and parser.syntax is Syntax.OUTSIDE:
                    self._reuse.continued(ready.live)
                    due = self._next_continued(n_tokens)
        finish = _finish(tokens, parser, has_stop_token)
        pieces, finish = reader.end(parser.finish(stopped=has_stop_token), finish)
        teller.tell(pieces)
        usage = Usage(ready.n_prompt, ready.n_cached, n_sampled, n_thinking)
        if job.outbox.cancel.is_set():
            return Finish.ERROR, usage
        teller.end(Ended(finish, usage, parser.found))
        if finish in (Finish.STOP, Finish.TOOL_CALLS) and not request.continues:
            close = AssistantClose(has_stop_token, parser.in_thinking)
            self._remember(job, ready, reader, teller.said, close)
        return finish, usage

    def _is_enough(self, parallel: bool, events: list) -> bool:
        """Whether a call is complete and no second one is wanted."""
        return not parallel and any(isinstance(event, CallComplete) for event in events)

    def _remember(
        self, job: Job, ready: Ready, reader: ReplyReader, said: Gathered, close: AssistantClose
    ) -> None:
        calls = tuple(
            Call(call.call_id, call.name, call.arguments)
            for call in said.calls
            if call.call_id in reader.call_ids
        )
        if reader.block:
            self._replay.remember(reader.call_ids, reader.block.encode())
        reply = Message(
            "assistant",
            said.text,
            said.thinking or None,
            calls,
            sampled_block=reader.block,
        )
        ready.live.answered(
            job.conversation,
            reply,
            [call.call_id for call in calls],
            self._engine.chat.render([close]),
            job.request.gets_thinking_back,
        )


class _Teller:
    """Tells a client the pieces of its answer: each at once in a stream, else all at the end, so
    that the event loop is not woken for what nobody reads yet.

    Attributes:
        said: What it was told.
    """

    def __init__(self, outbox: Outbox, *, streams: bool) -> None:
        self.said = Gathered()
        self._outbox = outbox
        self._streams = streams
        self._whole: list[Piece] = []

    def tell(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            self.said.add(piece)
        if not self._streams:
            self._whole += pieces
        elif pieces:
            self._outbox.put(Pieces(tuple(pieces)), sum(map(_weight, pieces)))

    def end(self, ended: Ended) -> None:
        if self._whole:
            self._outbox.put(Pieces(tuple(joined(self._whole))))
        self._outbox.put(ended)


def _finish(tokens: Generation, parser: StopSequences, has_stop_token: bool) -> Finish:
    if parser.found:
        return Finish.STOP_SEQUENCE
    if has_stop_token or parser.finished or tokens.finish_reason in ("closed", "stop"):
        return Finish.STOP
    return Finish.ERROR if tokens.finish_reason == "cancelled" else Finish.LENGTH


def _weight(piece: Piece) -> int:
    return 64 + 4 * len(getattr(piece, "text", ""))


def _gone() -> ApiError:
    return ApiError(
        "The calls that these results answer are no longer in memory; "
        "retry by replaying the full input history.",
        409,
        code="live_state_lost",
    )
