"""From the bytes of a request to a job that the engine can take; runs in threads of its own.

Whatever can be refused is refused here, before the first byte of an answer is sent.
"""

import dataclasses
import threading

from ds4agent.server.api.errors import ApiError, context_exceeded
from ds4agent.server.api.memory import ResponseMemory
from ds4agent.server.api.request import Api, ApiRequest, ServedModel
from ds4agent.server.api.requests import parse
from ds4agent.server.job import Job
from ds4agent.server.outbox import Outbox
from ds4agent.server.worker import EngineWorker
from engine.chat.constrain import reply_grammar
from engine.chat.conversation import Conversation
from engine.errors import EngineError
from engine.grammar import Grammar, GrammarCompiler, GrammarState


class Reception:
    """Reads requests for one worker. May be used by several threads."""

    def __init__(self, worker: EngineWorker, model: ServedModel, memory: ResponseMemory) -> None:
        self.model = model
        self._memory = memory
        self._worker = worker
        self._compiler: GrammarCompiler | None = None
        self._lock = threading.Lock()

    def job(self, api: Api, body: bytes, outbox: Outbox) -> Job:
        """Read a request.

        Raises:
            ApiError: it can't be answered.
        """
        waiting = self._worker.waiting_calls
        request = parse(api, body, self.model, live_call_ids=waiting, memory=self._memory)
        conversation = self._conversation(request)
        ctx = self._worker.engine.info.ctx
        if request.needs_live_state:
            n = len(request.result_ids)
            results = conversation.messages[-n:]
            return Job(request, conversation, None, results, outbox, self._grammar(request))
        least = self._worker.renderer.least_tokens(conversation)
        if least >= 2 * ctx:  # not worth encoding to know how far it is beyond
            raise context_exceeded(api, least, ctx)
        prompt = self._worker.renderer.render(conversation)
        if len(prompt.ids) >= ctx:
            raise context_exceeded(api, len(prompt.ids), ctx)
        if not prompt.ids:
            raise ApiError("The prompt is empty.")
        return Job(request, conversation, prompt, (), outbox, self._grammar(request))

    def count_tokens(self, body: bytes) -> dict[str, int]:
        """Count the tokens of a request to Messages.

        Raises:
            ApiError: it can't be read.
        """
        request = parse(Api.MESSAGES, body, self.model)
        conversation = self._conversation(request)
        least = self._worker.renderer.least_tokens(conversation)
        if least >= 64 * self._worker.engine.info.ctx:
            return {"input_tokens": least}  # at least: nobody waits for the rest of megabytes
        prompt = self._worker.renderer.render(conversation)
        return {"input_tokens": len(prompt.ids)}

    def _conversation(self, request: ApiRequest) -> Conversation:
        """Return the conversation with its past calls as they were sampled."""
        conversation = request.conversation
        if conversation.tool_choice == "required":
            # The grammar sees to it; the prompt stays what it was, and with it what is remembered.
            conversation = dataclasses.replace(conversation, tool_choice="auto")
        replay, disk = self._worker.replay, self._worker.disk
        asked = [[c.call_id for c in m.calls] for m in conversation.messages if m.calls]
        if disk is not None and any(replay.block(ids) is None for ids in asked):
            disk.load_calls()
        return replay.restore(conversation)

    def _grammar(self, request: ApiRequest) -> GrammarState | None:
        if not request.is_forced:
            return None
        engine, form = self._worker.engine, request.answer_form
        with self._lock:
            try:
                if self._compiler is None:
                    self._compiler = GrammarCompiler(engine.tokenizer, engine.chat.stop_ids)
                if form is not None and form.regex is not None:
                    grammar = Grammar.regex(form.regex)
                else:
                    rule = request.reply_rule()
                    grammar = reply_grammar(engine.chat.name, engine.tokenizer, rule)
                return self._compiler.start(grammar)
            except EngineError as error:
                raise ApiError(
                    f"{error}. {error.hint}".strip(), code="unsupported_schema"
                ) from error
