"""The grammar of a DeepSeek V4 reply: text, and one block of calls in DSML.

A parameter whose schema is a plain text is written as ``string="true"``: free text up to the
closing tag, its length and choices enforced. Every other one is JSON, also a text with a pattern,
since only there the pattern can be enforced; the parser reads both. Parameters come in the order
of the schema; those that are not required may be left out, and only named ones are written.
"""

import re
from collections.abc import Iterator
from typing import Any

from engine.chat.dsml_tags import MARK, TagFamily
from engine.chat.format import ToolSpec
from engine.chat.reply_rule import ANY_TEXT, ReplyRule, json_value, literal, regex, token
from engine.grammar import GrammarError
from engine.tokenizer import Tokenizer

_NOTES = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})
_TEXT_KEYS = _NOTES | {"type", "minLength", "maxLength"}
_OBJECT_KEYS = _NOTES | {
    *("type", "properties", "required", "additionalProperties"),
    *("$defs", "definitions", "$schema", "$id", "strict"),
}
_NAME = re.compile(r'[^"<>\n]{1,128}')


def lark(rule: ReplyRule, tokenizer: Tokenizer, family: TagFamily) -> str:
    """Return the grammar as a Lark text.

    Raises:
        GrammarError: a schema can't be written in DSML or can't be enforced.
    """
    return "\n".join(_Dsml(rule, tokenizer, family).rules()) + "\n"


class _Dsml:
    def __init__(self, rule: ReplyRule, tokenizer: Tokenizer, family: TagFamily) -> None:
        self._rule = rule
        self._tokenizer = tokenizer
        self._family = family
        self._mark = token(MARK, tokenizer)

    def rules(self) -> Iterator[str]:
        rule = self._rule
        block_open = re.escape(self._family.block_open)
        yield f"start: {'thought ' if rule.thinking else ''}reply"
        if rule.thinking:
            yield f"thought: THOUGHT {token('</think>', self._tokenizer)}"
            yield f"THOUGHT: {regex(ANY_TEXT, ('</think>',))}"
        choices = []
        if rule.answer_schema is not None:
            choices.append("answer")
            yield f"answer: {json_value(rule.answer_schema)}"
        elif not rule.must_call:
            without = (block_open,) if rule.tools else ()
            choices.append("TEXT")
            yield f"TEXT: {regex(ANY_TEXT, without)}"
            if rule.tools:
                choices.append("LEAD block")
                yield f"LEAD: {regex(ANY_TEXT + '<', without)}"
        if rule.tools and (rule.must_call or rule.answer_schema is not None):
            choices.append('"\\n\\n<" block')
        yield f"reply: {' | '.join(choices)}"
        if rule.tools:
            yield from self._block()

    def _tag(self, text: str) -> str:
        """Return a tag without its first bracket: the mark, then the text."""
        return f"{self._mark} {literal(self._family.mark.removeprefix(MARK) + text)}"

    def _block(self) -> Iterator[str]:
        tools, name = self._rule.tools, self._family.block
        names = " | ".join(f"tool_{i}" for i in range(len(tools)))
        block_open, block_close = self._tag(f"{name}>\n"), self._tag(f"{name}>")
        call_open, call_close = self._tag('invoke name="'), self._tag("invoke>\n")
        yield f'block: {block_open} call+ "</" {block_close}'
        yield f'call: "<" {call_open} ({names}) "</" {call_close}'
        # What the parser would take for the end of a value must not come as ordinary text.
        bad = (re.escape(self._family.value_close),)
        yield f"VALUE: {regex(ANY_TEXT + '</', bad)}"
        for i, tool in enumerate(tools):
            yield from self._tool(i, tool, bad)

    def _tool(self, index: int, tool: ToolSpec, bad: tuple[str, ...]) -> Iterator[str]:
        schema = tool.parameters
        _check(tool)
        required = tuple(schema.get("required") or ())
        properties: dict[str, Any] = dict(schema.get("properties") or {})
        more = schema.get("additionalProperties", True)
        properties.update({key: more for key in required if key not in properties})
        shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        symbols = [literal(f'{tool.name}">\n')]
        for number, (key, value) in enumerate(properties.items()):
            if not _NAME.fullmatch(key):
                if key not in required:
                    continue
                raise _unusable(tool, f"the parameter name {key[:40]!r} can't be written in DSML")
            symbol = f"p_{index}_{number}"
            symbols.append(symbol if key in required else f"{symbol}?")
            yield from self._parameter(symbol, key, value, shared, bad)
        yield f"tool_{index}: {' '.join(symbols)}"

    def _parameter(
        self, symbol: str, key: str, schema: Any, shared: dict[str, Any], bad: tuple[str, ...]
    ) -> Iterator[str]:
        def opening(is_string: bool) -> str:
            flag = str(is_string).lower()
            tag = self._tag(f'parameter name="{key}" string="{flag}">')
            return f'"<" {tag}'

        close = self._tag("parameter>\n")
        texts = _choices(schema)
        choices = []
        if texts is not None:
            written = " | ".join(literal(text + "</") for text in texts)
            choices.append(f"{opening(True)} ({written}) {close}")
        elif _is_plain_text(schema):
            least, most = schema.get("minLength", 0), schema.get("maxLength")
            terminal = "VALUE"
            if least or most is not None:
                terminal = f"VALUE_{symbol.upper()}"
                length = f"{{{least},{'' if most is None else most}}}"
                pattern = f"(?s:.{length})</"
                yield f"{terminal}: {regex(pattern, bad)}"
            choices.append(f"{opening(True)} {terminal} {close}")
        else:
            if _may_be_any_text(schema):
                choices.append(f"{opening(True)} VALUE {close}")
            value = {**schema, **shared} if isinstance(schema, dict) else schema
            yield f"{symbol}_json: {json_value(value)}"
            choices.append(f'{opening(False)} {symbol}_json "</" {close}')
        yield f"{symbol}: {' | '.join(choices)}"


def _check(tool: ToolSpec) -> None:
    """Refuse what the order and presence of tags can't enforce."""
    if not _NAME.fullmatch(tool.name):
        raise _unusable(tool, "the name can't be written in DSML")
    if tool.parameters.get("type", "object") != "object":
        raise _unusable(tool, "the arguments are no object")
    unknown = sorted(set(tool.parameters) - _OBJECT_KEYS)
    if unknown:
        raise _unusable(tool, f"the schema of its arguments has {unknown[0]!r} at the top")


def _unusable(tool: ToolSpec, why: str) -> GrammarError:
    return GrammarError(
        f"calls of the tool {tool.name[:64]!r} can't be forced: {why}",
        "Change its schema, or leave the calls free.",
    )


def _choices(schema: Any) -> list[str] | None:
    """Return the texts to choose from, if the schema is nothing but a choice of texts."""
    if not isinstance(schema, dict) or set(schema) - _NOTES - {"type", "enum", "const"}:
        return None
    texts = schema.get("enum") if "enum" in schema else [schema.get("const")]
    if "const" in schema and "enum" in schema or schema.get("type", "string") != "string":
        return None
    is_text = isinstance(texts, list) and texts and all(isinstance(t, str) for t in texts)
    return texts if is_text and not any(MARK in t for t in texts) else None


def _is_plain_text(schema: Any) -> bool:
    return (
        isinstance(schema, dict)
        and schema.get("type") == "string"
        and not set(schema) - _TEXT_KEYS
        and schema.get("minLength", 0) <= schema.get("maxLength", float("inf"))
    )


def _may_be_any_text(schema: Any) -> bool:
    if schema is True:
        return True
    if not isinstance(schema, dict) or set(schema) - _NOTES - {"type"}:
        return False
    kinds = schema.get("type", "string")
    return "string" in ([kinds] if isinstance(kinds, str) else kinds)
