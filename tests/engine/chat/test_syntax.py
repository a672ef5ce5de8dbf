"""Which bytes of a call are decoded greedily: recorded states, and our choices where we differ."""

import json
import lzma
from pathlib import Path

import pytest

from engine.chat.chatml_parser import ChatmlParser
from engine.chat.dsml_parser import DsmlParser
from engine.chat.format import StreamParser, ToolSpec
from engine.chat.syntax import JsonQuotes, Syntax

FIXTURE = Path(__file__).parents[2] / "fixtures" / "prompt" / "sampling-states.json.xz"
CASES = {case["name"]: case for case in json.loads(lzma.decompress(FIXTURE.read_bytes()))["cases"]}
TOOLS = tuple(ToolSpec(name, "", {}) for name in ("bash", "edit", "a", "b"))
TAG_IN_JSON = "json_string_with_close_marker"


def states(parser: StreamParser, raw: bytes) -> list[str]:
    """The state after each byte, [len(raw)]."""
    found = []
    for at in range(len(raw)):
        parser.feed(raw[at : at + 1])
        found.append(parser.syntax.value)
    return found


def recorded(case: dict) -> list[str]:
    return [state for start, stop, state in case["state_after_byte"] for _ in range(start, stop)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_recorded_states_after_every_byte(case: dict) -> None:
    raw = case["text"].encode()
    found, expected = states(DsmlParser(TOOLS, False), raw), recorded(case)
    if case["name"] == TAG_IN_JSON:
        # Here the recording reads on; for us the value ends at the tag, as trained. Half a
        # JSON value is none, so the block is broken there.
        end = raw.index("</｜DSML｜parameter>".encode()) + len("</｜DSML｜parameter>".encode())
        assert found[: end - 1] == expected[: end - 1]
        assert set(found[end - 1 :]) == {Syntax.OUTSIDE}
    else:
        assert found == expected


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_states_do_not_depend_on_how_the_bytes_were_cut(case: dict) -> None:
    raw = case["text"].encode()
    expected = states(DsmlParser(TOOLS, False), raw)
    for at in range(1, len(raw)):
        parser = DsmlParser(TOOLS, False)
        parser.feed(raw[:at])
        assert parser.syntax == expected[at - 1], at


def test_a_tag_that_is_quoted_in_thinking_makes_nothing_greedy() -> None:
    parser = DsmlParser(TOOLS, True)
    parser.feed(CASES["string_param_angle"]["text"].encode())
    assert parser.syntax is Syntax.OUTSIDE


def test_a_lone_bracket_is_payload_and_the_tag_after_it_is_still_seen() -> None:
    parser = DsmlParser(TOOLS, False)
    raw = CASES["string_param_angle"]["text"]
    parser.feed(raw[: raw.index("</｜DSML｜parameter") + 1].encode())
    assert parser.syntax is Syntax.STRING_BODY
    parser.feed("/｜DSML｜parameter>".encode())
    assert parser.syntax is Syntax.STRUCTURAL


def test_states_of_a_chatml_call() -> None:
    raw = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls", "n": 12}}\n</tool_call>'
    found = states(ChatmlParser(TOOLS), raw.encode())
    payload = {
        at for at, state in enumerate(found) if state in (Syntax.STRING_BODY, Syntax.JSON_STRING)
    }
    written = "".join(raw[at] for at in sorted(payload))
    assert written == '"command"ls"n'  # from each opening quote to before the closing one
    assert found[raw.index("bash")] == Syntax.STRUCTURAL
    assert found[raw.index("12")] == Syntax.JSON_STRUCTURAL
    assert set(found[:10]) == {Syntax.OUTSIDE} and found[10] == Syntax.STRUCTURAL
    assert found[-1] == Syntax.OUTSIDE


def test_ordinary_json_in_a_chatml_answer_is_not_greedy() -> None:
    found = states(ChatmlParser(TOOLS), b'{"colour": "red", "n": [1, 2]}')
    assert set(found) == {Syntax.OUTSIDE}


@pytest.mark.parametrize(
    "text, inside",
    [('"a', True), ('"a"', False), ('"a\\"', True), ('"a\\\\"', False), ('\\"', True), ("", False)],
)
def test_quotes_are_followed_at_every_cut(text: str, inside: bool) -> None:
    for at in range(len(text) + 1):
        quotes = JsonQuotes()
        quotes.feed(text[:at])
        quotes.feed(text[at:])
        assert quotes.inside is inside
