"""What an answer must be: JSON of a schema, any JSON object, or a match of a regular expression."""

from typing import Any

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.fields import Fields, wrong
from ds4agent.server.api.request import AnswerForm
from engine.chat.conversation import ResponseFormat
from engine.grammar import Grammar, GrammarError, check_grammar

_KINDS = ("text", "json_object", "json_schema", "regex")
_MAX_REASON = 300  # characters: a reason may quote the whole pattern
_ANY_OBJECT = {"type": "object"}
_Form = tuple[AnswerForm | None, ResponseFormat | None]


def read_answer_form(fields: Fields | None) -> _Form:
    """Read ``response_format`` (Chat Completions), ``text.format`` (Responses) or
    ``output_config.format`` (Messages).

    A schema stands under ``schema``, or in ``json_schema`` with its name.

    Returns:
        What the answer must be, and what the prompt is to ask for; None for free text.

    Raises:
        ApiError: it is nothing that can be enforced; the message says why.
    """
    if fields is None:
        return None, None
    match fields.one_of("type", _KINDS):
        case "json_object":
            return AnswerForm(_ANY_OBJECT), ResponseFormat()
        case "json_schema":
            inner = fields.object("json_schema") or fields
            schema = inner.get("schema")
            if not isinstance(schema, dict):
                raise wrong(inner.at("schema"), schema, "a JSON schema")
            _check(Grammar.json_schema, schema, inner.at("schema"))
            return AnswerForm(schema, name=inner.text("name", "")), ResponseFormat(schema)
        case "regex":
            name = "pattern" if "pattern" in fields else "regex"
            pattern = fields.text(name)
            _check(Grammar.regex, pattern, fields.at(name))
            return AnswerForm(regex=pattern), None
    return None, None


def _check(make: Any, value: Any, where: str) -> None:
    try:
        check_grammar(make(value))
    except GrammarError as error:
        message = f"{where} can't be enforced: {str(error)[:_MAX_REASON]}."
        raise ApiError(message, param=where, code="invalid_json_schema") from error
