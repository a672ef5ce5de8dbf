"""What is decided about DSML where the known programs differ: one test for each choice."""

import json

import pytest

from engine.chat.dsml_parser import DsmlParser
from engine.chat.dsml_tags import FAMILIES, PLAIN, SHORT, TRAINED
from engine.chat.format import (
    CallArguments,
    CallComplete,
    CallMalformed,
    ParserEvent,
    Text,
    Thinking,
    ToolSpec,
)
from tests.engine.chat.streams import run_all_splits

COMMAND = {"type": "object", "properties": {"command": {}}, "required": ["command"]}
TOOLS = (ToolSpec("bash", "", COMMAND), ToolSpec("status", "", {}))
PARAMETER = '<｜DSML｜parameter name="command" string="true">ls</｜DSML｜parameter>\n'
BEFORE = f'<｜DSML｜tool_calls>\n<｜DSML｜invoke name="bash">\n{PARAMETER}'
BLOCK = f"{BEFORE}</｜DSML｜invoke>\n</｜DSML｜tool_calls>"


def read(raw: str, *, stopped: bool = False, thinking: bool = False, **options) -> list:
    return run_all_splits(
        lambda: DsmlParser(TOOLS, thinking, **options), raw.encode(), stopped=stopped
    )[0]


def calls(events: list[ParserEvent]) -> list[tuple[str, dict]]:
    return [(e.call.name, e.call.arguments) for e in events if isinstance(e, CallComplete)]


def spelled(name: str, raw: str = BLOCK) -> str:
    family = FAMILIES[name]
    return (
        raw.replace("｜DSML｜tool_calls", family.mark + family.block)
        .replace("｜DSML｜i", family.mark + "i")
        .replace("｜DSML｜p", family.mark + "p")
    )


LS = [("bash", {"command": "ls"})]


# --- a block in thinking, thinking that never ends --------------------------------------------


def test_a_block_in_thinking_is_no_call() -> None:
    assert read(BLOCK + "</think>done", thinking=True) == [Thinking(BLOCK), Text("done")]


def test_thinking_that_never_ends_is_thinking_and_no_call() -> None:
    assert read(f"hm\n\n{BLOCK}", thinking=True) == [Thinking(f"hm\n\n{BLOCK}")]


# --- spellings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["v4", "v41"])
def test_trained_spellings_are_calls(name: str) -> None:
    assert calls(read(spelled(name))) == LS


@pytest.mark.parametrize("name", ["short", "plain"])
def test_other_spellings_are_text_unless_asked_for(name: str) -> None:
    raw = spelled(name)
    assert read(raw) == [Text(raw)]
    assert calls(read(raw, families=(*TRAINED, SHORT, PLAIN))) == LS


def test_tags_of_another_spelling_are_text_inside_a_block() -> None:
    raw = BLOCK.replace(">ls<", ">a</｜DSML｜ parameter><")
    assert calls(read(raw)) == [("bash", {"command": "a</｜DSML｜ parameter>"})]


# --- values ---------------------------------------------------------------------------------------


def test_entities_stay_but_for_the_escaped_closing_tag() -> None:
    raw = BLOCK.replace(">ls<", ">&lt;b&gt; &amp; &lt;/｜DSML｜parameter><")
    events = read(raw)
    assert calls(events) == [("bash", {"command": "&lt;b&gt; &amp; </｜DSML｜parameter>"})]
    shown = "".join(e.text for e in events if isinstance(e, CallArguments))
    assert json.loads(shown) == calls(events)[0][1]


def test_a_closing_tag_ends_a_json_value_even_between_quotes() -> None:
    raw = BLOCK.replace('"true">ls', '"false">{"a": "</｜DSML｜parameter>"}')
    assert isinstance(read(raw)[-1], CallMalformed)


def test_json_that_is_broken_spoils_the_block() -> None:
    event = read(BLOCK.replace('"true">ls', '"false">{"a":'))[-1]
    assert isinstance(event, CallMalformed) and "the JSON is broken" in event.reason


@pytest.mark.parametrize("value, meant", [("", None), (" \n", None), ("1e3", 1000.0)])
def test_shown_arguments_are_the_arguments(value: str, meant: object) -> None:
    events = read(BLOCK.replace('"true">ls', f'"false">{value}'))
    assert calls(events) == [("bash", {"command": meant})]
    shown = "".join(e.text for e in events if isinstance(e, CallArguments))
    assert json.loads(shown) == {"command": meant}


def test_a_value_without_its_string_attribute_is_a_string() -> None:
    assert calls(read(BLOCK.replace(' string="true"', "").replace(">ls<", ">1<"))) == [
        ("bash", {"command": "1"})
    ]


def test_an_empty_value_that_is_no_string_is_null() -> None:
    raw = BLOCK.replace('"true">ls', '"false">')
    assert calls(read(raw)) == [("bash", {"command": None})]


def test_a_parameter_that_comes_twice_spoils_the_block() -> None:
    event = read(BLOCK.replace(PARAMETER, PARAMETER * 2))[-1]
    assert isinstance(event, CallMalformed) and "occurs twice" in event.reason


def test_a_malformed_block_is_given_raw_and_none_of_its_calls_counts() -> None:
    two = BLOCK.replace("</｜DSML｜tool_calls>", "oops</｜DSML｜tool_calls>")
    events = read(f"ok{two}")
    assert not calls(events)
    assert isinstance(events[-1], CallMalformed) and events[-1].raw in two


def test_arguments_are_spaced_as_python_writes_them() -> None:
    raw = BLOCK.replace(PARAMETER, PARAMETER + PARAMETER.replace("command", "more"))
    shown = "".join(e.text for e in read(raw) if isinstance(e, CallArguments))
    assert shown == '{"command": "ls", "more": "ls"}'


# --- the frame ------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["", "\n", "\n\n", "\n\n\n"])
@pytest.mark.parametrize("text", ["", "ok"])
def test_newlines_before_a_block_are_kept_in_its_raw_bytes_only(before: str, text: str) -> None:
    events = read(text + before + BLOCK)
    assert "".join(e.text for e in events if isinstance(e, Text)) == text
    assert events[-1].call.raw == before + BLOCK


def test_newlines_after_thinking_and_before_the_block_are_kept_too() -> None:
    events = read(f"hm\n</think>\n\n{BLOCK}", thinking=True)
    assert events[0] == Thinking("hm") and events[-1].call.raw == f"\n\n{BLOCK}"


def test_spaces_before_a_block_are_text() -> None:
    assert read(f"ok \n{BLOCK}")[0] == Text("ok ")


# --- a block that is cut off ---------------------------------------------------------------------


CUT = [
    BEFORE,
    BEFORE + "</",
    BEFORE + "</｜DSML｜inv",
    BEFORE + "</｜DSML｜invoke>",
    BEFORE + "</｜DSML｜invoke>\n</｜DSML｜tool_ca",
]


@pytest.mark.parametrize("raw", CUT)
def test_missing_closing_tags_are_added_when_the_model_ended_its_turn(raw: str) -> None:
    events = read(raw, stopped=True)
    assert calls(events) == LS
    assert events[-1].repaired and events[-1].call.raw == raw


@pytest.mark.parametrize("raw", CUT)
def test_nothing_is_added_when_the_reply_was_cut_off(raw: str) -> None:
    events = read(raw, stopped=False)
    assert not calls(events) and "cut off" in events[-1].reason


@pytest.mark.parametrize(
    "raw",
    [
        BEFORE.removesuffix("</｜DSML｜parameter>\n"),  # half a command
        BEFORE.removesuffix("parameter>\n"),
        BEFORE + "<",
        BEFORE + '<｜DSML｜parameter name="more',
        BEFORE.replace(PARAMETER, ""),  # what the tool needs is missing
        "<｜DSML｜tool_calls>\n",
    ],
)
def test_what_may_lack_more_than_tags_is_never_completed(raw: str) -> None:
    events = read(raw, stopped=True)
    assert not calls(events) and "cut off" in events[-1].reason


def test_a_block_that_closed_is_not_called_repaired() -> None:
    assert not read(BLOCK, stopped=True)[-1].repaired


# --- where a reply begins ------------------------------------------------------------------------


def test_a_reply_may_begin_inside_the_block() -> None:
    inner = BLOCK.removeprefix("<｜DSML｜tool_calls>\n")
    assert calls(read(inner, in_block=True)) == LS
    assert isinstance(read("Sure!", in_block=True)[-1], CallMalformed)
