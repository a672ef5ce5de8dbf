"""The grammar of a ChatML reply: ``<tool_call>``, one JSON object, ``</tool_call>``.

For a parser with ``tagged_only``: what looks like a call without its tags is text here.
"""

from collections.abc import Iterator

from engine.chat.constrain_files import file_rules
from engine.chat.reply_rule import ANY_TEXT, ReplyRule, json_value, literal, regex, token
from engine.grammar import GrammarError
from engine.tokenizer import Tokenizer

_TAG, _TAG_END = "<tool_call>", "</tool_call>"
_WORDS = r"\p{L}(?s:.*)"


def lark(rule: ReplyRule, tokenizer: Tokenizer) -> str:
    """Return the grammar as a Lark text.

    Raises:
        GrammarError: the arguments of a tool can't be an object.
    """
    return "\n".join(_rules(rule, tokenizer)) + "\n"


def _rules(rule: ReplyRule, tokenizer: Tokenizer) -> Iterator[str]:
    thinks = rule.thinking and tokenizer.has_control("</think>")
    yield f"start: {'thought? ' if thinks else ''}reply"
    if thinks:
        yield (
            f"thought: {token('<think>', tokenizer)} THOUGHT {token('</think>', tokenizer)}"
            r" /\n{0,2}/"
        )
        yield f"THOUGHT: {regex(ANY_TEXT, ('</think>',))}"
    has_tag = tokenizer.has_control(_TAG)
    tag = token(_TAG, tokenizer)
    choices = []
    if rule.files:
        choices.append("files")
        yield from file_rules(rule.files)
    if rule.tools:
        choices.append(f"{tag} call")
    if rule.answer_schema is not None:
        choices.append("answer")
        yield f"answer: {json_value(rule.answer_schema)}"
    elif not rule.must_call:
        choices.append("TEXT")
        text = _WORDS if rule.begins_as_words else ANY_TEXT
        yield f"TEXT: {regex(text, (_TAG,) if rule.tools else ())}"
        if rule.tools and has_tag:
            choices.append(f"TEXT {tag} call")
        elif rule.tools:
            choices.append("LEAD call")
            yield f"LEAD: {regex(text + _TAG, (_TAG + '(?s:.)',))}"
    yield f"reply: {' | '.join(choices)}"
    if not rule.tools:
        return
    names = " | ".join(f"tool_{i}" for i in range(len(rule.tools)))
    yield f'call: "\\n" ({names}) "\\n" {token(_TAG_END, tokenizer)}'
    for i, tool in enumerate(rule.tools):
        if tool.parameters.get("type", "object") != "object":
            raise GrammarError(
                f"the arguments of the tool {tool.name} are of type "
                f"{tool.parameters['type']!r}, expected 'object'"
            )
        head = f'{{"name": {literal(tool.name)}, "arguments": '
        yield f'tool_{i}: {literal(head)} arguments_{i} "}}"'
        yield f"arguments_{i}: {json_value({'type': 'object', **tool.parameters})}"
