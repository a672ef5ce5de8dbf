"""Reading DeepSeek V4 replies: recorded streams, damage, and what is never run."""

import json
import lzma
import time
from pathlib import Path

import pytest

from engine.chat.dsml_parser import DsmlParser
from engine.chat.format import (
    CallArguments,
    CallComplete,
    CallMalformed,
    CallStarted,
    ParserEvent,
    StreamParser,
    Text,
    Thinking,
    ToolSpec,
)
from engine.chat.stop_sequences import StopSequences
from tests.engine.chat.streams import mutations, run, run_all_splits

FIXTURES = Path(__file__).parents[2] / "fixtures" / "prompt"
NAMES = ("read_file", "git_status", "write", "f", "bash")
TOOLS = tuple(ToolSpec(name, "", {}) for name in NAMES)
CALL = (
    '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="bash">\n'
    '<｜DSML｜parameter name="command" string="true">ls</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
)

# Where we differ from the recording on purpose: text, thinking and calls that we give, or the
# reason of a malformed call.
DIFFERENT = {
    "dsml_inside_thinking_unclosed": "no call in thinking",
    "dsml_mention_in_thinking": "a mention in thinking is thinking",
    "unknown_dsml_tag": "only a block of calls begins a block",
    "json_invalid_payload": "the value of 'o'",
    "string_attr_missing": [("f", {"x": "1"})],
    "string_attr_bad_value": [("f", {"x": 1})],
    "attr_order_swapped": [("f", {"x": "1"})],
    "param_name_special_chars": [("f", {"a b": "1", "x.y-z": "2", "한글": "3", " string= ": "4"})],
    "invoke_name_empty": "there is no tool ''",
    "direct_json_in_invoke": "only tags may stand",
    "nested_params": "may not stand there",
    "trunc_in_block_open": "cut off",
    "trunc_in_invoke_tag": "cut off",
    "trunc_after_invoke_tag": "cut off",
    "trunc_in_param_tag": "cut off",
    "trunc_in_param_close": "cut off",
    "trunc_after_param_close": "cut off",
    "trunc_in_json_value": "cut off",
    "trunc_after_invoke_close": "cut off",
    "trunc_in_block_close": "cut off",
}


def recorded(name: str) -> list[dict]:
    return json.loads(lzma.decompress((FIXTURES / f"{name}.json.xz").read_bytes()))["cases"]


def parser_of(given: dict) -> StreamParser:
    """The parser with the options of a recorded case."""
    parser = DsmlParser(
        TOOLS if given["parse_tool_calls"] else (),
        given["thinking"] and given["stage"] != "ContentContinuation",
        in_block=given["starts_in_tool_calls"],
        continues=given["stage"] is not None,
    )
    return StopSequences(parser, given["stop_sequences"])


# Blanking the text around JSON depends on the cuts in the recorded parser; we don't do it.
CASES = {case["name"]: case for case in recorded("dsml") if not case["input"]["parse_json_output"]}


def calls_of(events: list[ParserEvent]) -> list[tuple[str, dict]]:
    return [(e.call.name, e.call.arguments) for e in events if isinstance(e, CallComplete)]


def text_of(events: list[ParserEvent], kind: type) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_recorded_reply_at_every_split(case: dict) -> None:
    given, expected = case["input"], case["expect"]
    events, _ = run_all_splits(lambda: parser_of(given), given["raw"].encode())
    calls, content = calls_of(events), text_of(events, Text)
    malformed = [event for event in events if isinstance(event, CallMalformed)]
    match DIFFERENT.get(case["name"]):
        case list(ours):
            assert calls == ours
        case str() if case["name"] == "unknown_dsml_tag":
            assert content == given["raw"]
        case str() if given["thinking"]:
            thought, _, answer = given["raw"].partition("</think>")
            assert (text_of(events, Thinking), content, calls) == (thought, answer, [])
        case str(reason):
            assert not calls
            assert reason in malformed[0].reason and "\n" not in malformed[0].reason
            assert malformed[0].raw in given["raw"]
            assert content == expected["content"]
        case None:
            ours = [(call["name"], call["arguments"]) for call in expected["tool_calls"]]
            assert calls == [(name, json.loads(text, strict=False)) for name, text in ours]
            assert content == expected["content"]
            assert text_of(events, Thinking) == (expected["reasoning_content"] or "")
            assert not malformed


def test_events_of_a_call_come_in_order_and_show_json() -> None:
    events, was_finished = run_all_splits(lambda: DsmlParser(TOOLS, False), CALL.encode())
    assert [type(event) for event in events] == [CallStarted, CallArguments, CallComplete]
    assert events[1].text == '{"command": "ls"}'
    assert events[2].call.raw == CALL
    assert was_finished


def test_one_broken_call_spoils_its_block() -> None:
    second = '<｜DSML｜invoke name="zap">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
    raw = CALL.replace("</｜DSML｜tool_calls>", second)
    events, was_finished = run_all_splits(lambda: DsmlParser(TOOLS, False), raw.encode())
    assert not calls_of(events)
    assert "no tool 'zap'" in events[-1].reason
    assert was_finished


@pytest.mark.parametrize(
    "broken, said",
    [
        ("<｜DSML｜tool_calls></｜DSML｜tool_calls>", "may not stand there"),
        (CALL.replace('name="bash"', ""), "no tool ''"),
        (CALL.replace("｜invoke name", "｜invoke nam e"), "is no tag"),
        (CALL.replace('"command"', '"' + "c" * 600 + '"'), "no end"),
        (CALL.replace('name="command" ', ""), "no name"),
        (
            CALL.replace("</｜DSML｜invoke>", '<｜DSML｜parameter name="command">'),
            "occurs twice",
        ),
        (CALL.replace("</｜DSML｜invoke>\n", ""), "may not stand there"),
        (CALL.replace("\n</｜DSML｜invoke>", " and </｜DSML｜invoke>"), "only tags"),
    ],
)
def test_broken_block_is_reported_at_every_split(broken: str, said: str) -> None:
    events, was_finished = run_all_splits(lambda: DsmlParser(TOOLS, False), broken.encode())
    assert said in events[-1].reason
    assert not calls_of(events)
    assert was_finished


def test_escaped_closing_tag_is_read_back() -> None:
    raw = CALL.replace(">ls<", ">a &lt;/｜DSML｜parameter> &lt;b><")
    events, _ = run_all_splits(lambda: DsmlParser(TOOLS, False), raw.encode())
    assert calls_of(events) == [("bash", {"command": "a </｜DSML｜parameter> &lt;b>"})]


def test_empty_value_that_is_no_string_is_null() -> None:
    raw = CALL.replace('"true">ls', '"false">')
    assert calls_of(run(lambda: DsmlParser(TOOLS, False), [raw.encode()])[0]) == [
        ("bash", {"command": None})
    ]


def test_in_thinking_until_its_tag() -> None:
    parser = DsmlParser(TOOLS, True)
    parser.feed(b"a </thin")
    assert parser.in_thinking
    parser.feed(b"k>")
    assert not parser.in_thinking


def test_large_values_take_linear_time() -> None:
    raw = CALL.replace(">ls<", ">" + "x\n" * 500_000 + "<").encode()
    for piece in (len(raw), 50):
        started = time.process_time()
        pieces = [raw[i : i + piece] for i in range(0, len(raw), piece)]
        events, _ = run(lambda: DsmlParser(TOOLS, False), pieces)
        assert len(calls_of(events)[0][1]["command"]) == 1_000_000
        assert time.process_time() - started < (1 if piece > 50 else 4)  # 0.1 and 0.5 s measured


@pytest.mark.parametrize("piece", [50, 200_000])
@pytest.mark.parametrize(
    "unit", ["<", "\n", "\n\n<", "<｜DSML｜", "</think", "</think>", "</think>\n", "a</think>"]
)
def test_repeated_marks_take_linear_time(unit: str, piece: int) -> None:
    raw = (unit * (200_000 // len(unit))).encode()
    started = time.process_time()
    run(lambda: DsmlParser(TOOLS, False), [raw[i : i + piece] for i in range(0, len(raw), piece)])
    assert time.process_time() - started < 4  # below 0.5 s measured; quadratic takes minutes


@pytest.mark.parametrize("piece", [50, 10_000_000])
@pytest.mark.parametrize(
    "kind, unit",
    [
        ("true", "&lt;/｜DSML｜parameter>"),
        ("true", "</｜DSML｜"),
        ("false", '"\\\\",'),
        ("false", "["),
        ("false", "<"),
    ],
)
def test_awkward_values_of_a_megabyte_take_linear_time(kind: str, unit: str, piece: int) -> None:
    value = unit * (1_000_000 // len(unit))
    raw = CALL.replace('"true">ls<', f'"{kind}">{value}<').encode()
    started = time.process_time()
    run(lambda: DsmlParser(TOOLS, False), [raw[i : i + piece] for i in range(0, len(raw), piece)])
    assert time.process_time() - started < 4  # 0.1 to 0.8 s measured


def test_many_calls_in_one_piece_take_linear_time() -> None:
    call = CALL.partition("\n")[2].rpartition("\n")[0] + "\n"
    raw = ("<｜DSML｜tool_calls>\n" + call * 10_000 + "</｜DSML｜tool_calls>").encode()
    started = time.process_time()
    events, _ = run(lambda: DsmlParser(TOOLS, False), [raw])
    assert len(calls_of(events)) == 10_000
    assert time.process_time() - started < 4  # 0.3 s measured


def test_damaged_replies_never_raise_and_never_depend_on_cuts() -> None:
    seeds = [case["input"]["raw"].encode() for case in CASES.values()]
    for raw in mutations(seeds, 1000):
        for thinking in (False, True):
            whole = run(lambda: DsmlParser(TOOLS, thinking), [raw])  # noqa: B023 used at once
            cut = [raw[: len(raw) // 2], raw[len(raw) // 2 :]]
            assert run(lambda: DsmlParser(TOOLS, thinking), cut) == whole, raw  # noqa: B023
            for name, arguments in calls_of(whole[0]):
                assert name in NAMES and isinstance(arguments, dict)
