"""Answers of a form that was asked for: calls of the tools, then JSON of a schema."""

import json
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from ds4agent.agent.conversation import Conversation
from ds4agent.errors import UsageError
from engine.chat.constrain import reply_grammar
from engine.chat.reply_rule import ReplyRule
from engine.grammar import Grammar, GrammarCompiler, GrammarError, GrammarState, check_grammar
from engine.tokenizer import Tokenizer

# As DeepSeek V4 was trained to be told.
_INSTRUCTION = (
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n{schema}"
)

# One for each vocabulary that is loaded.
_compilers: WeakKeyDictionary[Tokenizer, GrammarCompiler] = WeakKeyDictionary()


class ReplyForms:
    """Starts the grammars of the answers of one conversation."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    def start(self, rule: ReplyRule) -> GrammarState:
        """Return the grammar of one answer. The first of a vocabulary takes about a second.

        Raises:
            GrammarError: a schema can't be enforced, or the chat format can't write this.
        """
        chat, tokenizer = self._conversation.chat, self._conversation.session.tokenizer
        compiler = _compilers.get(tokenizer)
        if compiler is None:
            compiler = _compilers[tokenizer] = GrammarCompiler(tokenizer, chat.stop_ids)
        return compiler.start(reply_grammar(chat.name, tokenizer, rule))


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
