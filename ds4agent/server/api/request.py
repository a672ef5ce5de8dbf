"""What a client asks for, whichever interface it speaks.

Each interface has a function ``parse(body, model, ...) -> ApiRequest`` in a file of its own
(``requests.parse`` picks it); nothing after that point knows JSON fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from engine.chat.conversation import Conversation
from engine.chat.format import ToolSpec
from engine.chat.reply_rule import ReplyRule

MAX_OUTPUT = 393_216  # most tokens of one answer that a client may ask for; of deepseek-recipe
MIN_P = 0.05  # the default of antirez/ds4
# Where a client names no limit: of deepseek-recipe, by how much a reply is expected to think.
_DEFAULT_OUTPUT, _THINKING_OUTPUT, _MAX_EFFORT_OUTPUT = 8192, 65_536, 131_072
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Api(StrEnum):
    """The interfaces."""

    CHAT = "chat_completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    COMPLETIONS = "completions"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What reading a request has to know of the model that will answer it.

    Attributes:
        name: Its id in ``/v1/models``, and the model of a request that names none.
        context_length: Tokens of a prompt and its answer together.
        created: When it was loaded, in seconds since 1970.
        can_think: Its chat format has a place for thinking.
        thinks_by_default: It thinks where a client says nothing.
        asks_for_formats: Its prompt has a form that asks for JSON; where it has none, only the
            grammar of the answer sees to it.
        has_trained_sampling: While it thinks, temperature and top-p are those it was trained
            with, whatever a client says (DeepSeek V4).
    """

    name: str
    context_length: int
    created: int = 0
    can_think: bool = False
    thinks_by_default: bool = False
    asks_for_formats: bool = False
    has_trained_sampling: bool = False

    @classmethod
    def of_format(
        cls, name: str, context_length: int, format_name: str, can_think: bool, created: int = 0
    ) -> "ServedModel":
        """Describe a model by its chat format (``ChatFormat.name`` and ``can_think``)."""
        is_deepseek = format_name.startswith("deepseek")
        return cls(
            name,
            context_length,
            created,
            can_think=can_think,
            thinks_by_default=is_deepseek,
            asks_for_formats=is_deepseek,
            has_trained_sampling=is_deepseek,
        )


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose tokens: as ``engine.sampling_options.SamplingOptions``, with its limits."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = MIN_P
    seed: int | None = None  # None: another answer each time


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What an answer that is no tool call must be. One of the two is set.

    Attributes:
        schema: A JSON schema; ``{"type": "object"}`` where any JSON object will do.
        regex: A regular expression for the whole answer.
        name: What the client calls it.
    """

    schema: Any = None
    regex: str | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class CalledAs:
    """How a tool is named in the items of its interface (Responses).

    Attributes:
        kind: ``function``, ``custom`` (its input is text, not JSON) or ``tool_search``.
        name: Local name.
        namespace: Of the name that the model is shown, or ``""``.
    """

    kind: str
    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request, checked.

    Attributes:
        api: The interface it came through and is answered in.
        model: As the client named it; echoed in the reply.
        conversation: What becomes the prompt: messages, tools, thinking, effort, the section that
            asks for a format. Past calls are as the client sent them; ``CallReplay.restore`` puts
            in what was sampled.
        sampling: How to choose tokens.
        max_tokens: Longest answer, thinking included; None: the client said nothing.
        stop: Texts that end the answer; never empty ones.
        stream: Whether to answer in events.
        include_usage: A stream ends with its usage (Chat Completions and Completions).
        callable_tools: What may be called: the tools of the conversation, or the one that the
            client chose; none with ``tool_choice: none``.
        must_call: The reply has to be a call.
        parallel_calls: Several calls in one reply are welcome.
        answer_form: What the answer must be, or None.
        encrypts_thinking: Thinking also goes out in a form that the client sends back (Responses:
            ``include`` has ``reasoning.encrypted_content``).
        names: The tools that are no plain functions, by the name the model is shown.
        result_ids: Ids of the tool results at the very end, in the order they were sent; for
            answering in the live state. Empty where the conversation ends in something else.
        needs_live_state: Some of these answer calls that the conversation does not have: they
            make sense only as a continuation of the live state that made those calls.
        items: The input as it came, that of earlier responses before it, to be kept for a later
            request (Responses); None: not to be kept.
        echo: Settings that the reply repeats (Responses).
    """

    api: Api
    model: str
    conversation: Conversation
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    callable_tools: tuple[ToolSpec, ...] = ()
    must_call: bool = False
    parallel_calls: bool = True
    answer_form: AnswerForm | None = None
    encrypts_thinking: bool = False
    names: Mapping[str, CalledAs] = field(default_factory=lambda: _NOTHING)
    result_ids: tuple[str, ...] = ()
    needs_live_state: bool = False
    items: tuple[Any, ...] | None = None
    echo: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    @property
    def continues(self) -> bool:
        """Whether the reply goes on with the last message instead of beginning a new one."""
        messages = self.conversation.messages
        return bool(messages) and messages[-1].is_prefix

    @property
    def thinking(self) -> bool:
        """Whether the reply begins with thinking; one that goes on with an answer does not."""
        has_answer = self.continues and bool(self.conversation.messages[-1].content)
        return self.conversation.thinking and not has_answer

    @property
    def gets_thinking_back(self) -> bool:
        """Whether the client will send the thinking of the reply back with the next request: as
        it did with earlier replies, else as most clients of its interface do."""
        replies = [m for m in self.conversation.messages if m.role == "assistant"]
        if replies:
            return any(message.reasoning for message in replies)
        return self.api is Api.MESSAGES or self.encrypts_thinking

    @property
    def is_forced(self) -> bool:
        """Whether the reply has to follow a grammar; False: it is free, calls included."""
        return self.must_call or self.answer_form is not None

    def reply_rule(self) -> ReplyRule:
        """Return what the reply must be, for ``engine.chat.constrain.reply_grammar``.

        Not for an answer by regular expression, which is a grammar of its own.
        """
        schema = None if self.answer_form is None else self.answer_form.schema
        return ReplyRule(self.callable_tools, self.must_call, schema, self.thinking)

    def output_limit(self, n_prompt: int, context_length: int) -> int:
        """Return the most tokens to sample: what was asked for, or the default, and no more than
        there is room for; at least 1."""
        limit = self.max_tokens
        if limit is None and not self.thinking:
            limit = _DEFAULT_OUTPUT
        elif limit is None:
            is_max = self.conversation.effort == "max"
            limit = _MAX_EFFORT_OUTPUT if is_max else _THINKING_OUTPUT
        return max(1, min(limit, context_length - n_prompt))
