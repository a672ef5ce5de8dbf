"""Forced replies: with random logits every call can be read and fits the schema of its tool."""

import json
import random

import jsonschema
import pytest

from engine.chat.chatml_parser import ChatmlParser
from engine.chat.constrain import reply_grammar
from engine.chat.dsml_parser import DsmlParser
from engine.chat.dsml_tags import V4, V41
from engine.chat.format import CallComplete, CallMalformed, Text, Thinking, ToolSpec
from engine.chat.reply_rule import ReplyRule, closed
from engine.grammar import GrammarCompiler, GrammarError
from engine.tokenizer import Tokenizer
from tests.engine.chat.random_schemas import random_tool, speak

ANSWER = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "why": {"type": "string", "maxLength": 20}},
    "required": ["ok", "why"],
    "additionalProperties": False,
}
FORMATS = ("chatml", "deepseek_v4", "deepseek_v41")


@pytest.fixture(scope="module")
def worlds(
    chatml_tokenizer: Tokenizer, v4_tokenizer: Tokenizer
) -> dict[str, tuple[Tokenizer, int, GrammarCompiler]]:
    """Per format: vocabulary, end of turn, compiler."""
    found = {}
    for name in FORMATS:
        tokenizer = chatml_tokenizer if name == "chatml" else v4_tokenizer
        end = "<|im_end|>" if name == "chatml" else "<｜end▁of▁sentence｜>"
        stop_id = tokenizer.control_id(end)
        found[name] = (tokenizer, stop_id, GrammarCompiler(tokenizer, {stop_id}))
    return found


def parser_of(name: str, rule: ReplyRule) -> ChatmlParser | DsmlParser:
    if name == "chatml":
        return ChatmlParser(rule.tools, tagged_only=True)
    family = V41 if name == "deepseek_v41" else V4
    return DsmlParser(rule.tools, rule.thinking, families=(family,))


def reply(worlds: dict, name: str, rule: ReplyRule, seed: int) -> tuple[bytes, list, bool]:
    tokenizer, stop_id, compiler = worlds[name]
    state = compiler.start(reply_grammar(name, tokenizer, rule))
    return speak(parser_of(name, rule), state, tokenizer, stop_id, seed)


def check_calls(worlds: dict, name: str, seeds: range) -> int:
    """Force a call of random tools once a seed; return how many replies ended."""
    n_ended = 0
    for seed in seeds:
        chooser = random.Random(seed)
        tools = tuple(random_tool(chooser, f"tool-{i}") for i in range(chooser.randrange(1, 4)))
        by_name = {tool.name: tool for tool in tools}
        said, events, has_ended = reply(worlds, name, ReplyRule(tools, must_call=True), seed)
        n_ended += has_ended
        if not has_ended:
            continue
        assert not [e for e in events if isinstance(e, CallMalformed)], (seed, said.decode())
        calls = [e.call for e in events if isinstance(e, CallComplete)]
        assert calls, (seed, said.decode())
        for call in calls:
            jsonschema.validate(call.arguments, by_name[call.name].parameters)
    return n_ended


@pytest.mark.parametrize("name", FORMATS)
def test_every_forced_call_fits_its_schema(worlds: dict, name: str) -> None:
    assert check_calls(worlds, name, range(6)) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_every_forced_call_of_a_thousand_random_tools_fits(worlds: dict, name: str) -> None:
    # The others were cut at 4000 random tokens; all that ended were checked.
    assert check_calls(worlds, name, range(1000, 2000)) > 950


@pytest.mark.parametrize("name", FORMATS)
def test_an_answer_may_be_forced_into_a_schema(worlds: dict, name: str) -> None:
    for seed in range(3):
        said, events, has_ended = reply(worlds, name, ReplyRule(answer_schema=ANSWER), seed)
        assert has_ended
        jsonschema.validate(json.loads(said), ANSWER)
        assert "".join(e.text for e in events if isinstance(e, Text)) == said.decode()


@pytest.mark.parametrize("name", FORMATS)
def test_calls_or_an_answer(worlds: dict, name: str) -> None:
    rule = ReplyRule((random_tool(random.Random(3), "t"),), answer_schema=ANSWER)
    kinds = set()
    for seed in range(16):
        said, events, has_ended = reply(worlds, name, rule, seed)
        if not has_ended:
            continue
        assert not [e for e in events if isinstance(e, CallMalformed)]
        called = any(isinstance(e, CallComplete) for e in events)
        kinds.add(called)
        if not called:
            jsonschema.validate(json.loads(said), ANSWER)
    assert kinds == {True, False}


@pytest.mark.parametrize("name", ["deepseek_v4", "deepseek_v41"])
def test_thinking_is_free_and_comes_first(worlds: dict, name: str) -> None:
    for seed in range(2):
        _, events, has_ended = reply(
            worlds, name, ReplyRule(answer_schema=ANSWER, thinking=True), seed
        )
        assert has_ended
        text = "".join(e.text for e in events if isinstance(e, Text))
        jsonschema.validate(json.loads(text), ANSWER)
        assert all(isinstance(e, Text | Thinking) for e in events)


def allows(worlds: dict, name: str, rule: ReplyRule, text: str) -> bool:
    """Whether a reply may be this: control tokens are written by name."""
    tokenizer, stop_id, compiler = worlds[name]
    state = compiler.start(reply_grammar(name, tokenizer, rule))
    marks = ("｜DSML｜", "<tool_call>", "</tool_call>", "</think>")
    for part in _split(text, [mark for mark in marks if tokenizer.has_control(mark)]):
        ids = [tokenizer.control_id(part)] if part in marks else tokenizer.encode(part)
        for token_id in ids:
            if not state.allowed()[token_id]:
                return False
            state.accept(token_id)
    return bool(state.allowed()[stop_id])


def _split(text: str, marks: list[str]) -> list[str]:
    parts = [text]
    for mark in marks:
        parts = [
            piece
            for part in parts
            for i, rest in enumerate(part.split(mark) if part not in marks else [part])
            for piece in ([mark] if i else []) + [rest]
        ]
    return [part for part in parts if part]


def test_no_member_comes_twice(worlds: dict) -> None:
    """Found with open objects: the same name of a free member twice."""
    assert check_calls(worlds, "chatml", range(1167, 1168)) == 1


def test_objects_are_closed_where_their_members_are_named() -> None:
    named = {"properties": {"a": {"anyOf": [{"properties": {"b": {}}}, {}]}}}
    assert closed(named) == {
        "properties": {
            "a": {"anyOf": [{"properties": {"b": {}}, "additionalProperties": False}, {}]}
        },
        "additionalProperties": False,
    }
    for free in ({"type": "object"}, {"properties": {}, "required": ["x"]}, {"$ref": "#"}, True):
        assert closed(free) == free
    typed = {"properties": {}, "additionalProperties": {"type": "integer"}}
    assert closed(typed) == typed


LIST = ToolSpec("ls", "", {"type": "object", "properties": {"path": {"type": "string"}}})
DSML_CALL = (
    '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="ls">\n<｜DSML｜parameter name="path" '
    'string="true">a </b> < c</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
)
CHATML_CALL = '<tool_call>\n{"name": "ls", "arguments": {"path": "a"}}\n</tool_call>'


@pytest.mark.parametrize("name, call", [("deepseek_v4", DSML_CALL), ("chatml", CHATML_CALL)])
def test_trained_replies_are_allowed(worlds: dict, name: str, call: str) -> None:
    free = ReplyRule((LIST,))
    assert allows(worlds, name, free, "A < b.\nDone.")
    assert allows(worlds, name, free, f"Let me look.{call}")
    assert allows(worlds, name, ReplyRule((LIST,), must_call=True), call)
    assert not allows(worlds, name, ReplyRule((LIST,), must_call=True), f"Let me look.{call}")
    assert not allows(worlds, name, free, call.replace('ls"', 'rm"'))


@pytest.mark.parametrize(
    "parameters, said",
    [
        ({"type": "array"}, "no object"),
        ({"anyOf": [{}]}, "'anyOf'"),
        ({"type": "object", "properties": {'a"b': {}}, "required": ['a"b']}, "can't be written"),
    ],
)
def test_what_dsml_can_not_force_is_refused(
    v4_tokenizer: Tokenizer, parameters: dict, said: str
) -> None:
    rule = ReplyRule((ToolSpec("t", "", parameters),), must_call=True)
    with pytest.raises(GrammarError, match=said):
        reply_grammar("deepseek_v4", v4_tokenizer, rule)


def test_a_required_call_without_tools_is_refused(v4_tokenizer: Tokenizer) -> None:
    with pytest.raises(GrammarError, match="no tools"):
        reply_grammar("deepseek_v4", v4_tokenizer, ReplyRule(must_call=True))
