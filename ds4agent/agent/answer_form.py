"""Answers of a form that was asked for: calls of the tools, then JSON of a schema."""

import json
from pathlib import Path
from typing import Any

from ds4agent.agent.conversation import Conversation
from ds4agent.errors import UsageError
from engine.chat.constrain import reply_grammar
from engine.chat.format import ToolSpec
from engine.chat.reply_rule import ReplyRule
from engine.grammar import Grammar, GrammarCompiler, GrammarError, GrammarState, check_grammar

# As DeepSeek V4 was trained to be told.
_INSTRUCTION = (
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n{schema}"
)


class AnswerForm:
    """Starts the grammar of each answer of one conversation."""

    def __init__(self, schema: Any, conversation: Conversation) -> None:
        """Remember what is wanted; the vocabulary is prepared at the first answer."""
        self._schema = schema
        self._conversation = conversation
        self._compiler: GrammarCompiler | None = None

    def start(self, tools: tuple[ToolSpec, ...], thinking: bool) -> GrammarState:
        """Return the grammar of one answer: it is JSON of the schema, or calls of these tools.

        Raises:
            GrammarError: the schema, or that of a tool, can't be enforced.
        """
        chat, tokenizer = self._conversation.chat, self._conversation.session.tokenizer
        if self._compiler is None:
            self._compiler = GrammarCompiler(tokenizer, chat.stop_ids)
        rule = ReplyRule(tuple(tools), answer_schema=self._schema, thinking=thinking)
        return self._compiler.start(reply_grammar(chat.name, tokenizer, rule))


def read_schema(path: Path) -> dict[str, Any]:
    """Read the JSON schema that answers must fit.

    Raises:
        UsageError: the file can't be read, is no JSON schema, or asks for what can't be enforced.
    """
    hint = "Give a file with a JSON schema."
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}", "Check the path."
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid JSON: {error}", hint) from error
    if not isinstance(schema, dict):
        kind = type(schema).__name__
        raise UsageError(f"the schema in {path} is a {kind}, expected an object", hint)
    try:
        check_grammar(Grammar.json_schema(schema))
    except GrammarError as error:
        raise UsageError(f"the schema in {path} can't be enforced: {error}", error.hint) from error
    return schema


def instruction(schema: dict[str, Any]) -> str:
    """Return the part of the system prompt that tells the model of the form."""
    return _INSTRUCTION.format(schema=json.dumps(schema, ensure_ascii=False))
