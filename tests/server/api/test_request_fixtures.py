"""Bodies of three interfaces and the prompts and options that deepseek-recipe makes of them."""

import json
import lzma
from pathlib import Path

import pytest

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.request import Api, ApiRequest, ServedModel
from ds4agent.server.api.requests import parse
from engine.chat.deepseek_v4_dialect import DEEPSEEK_V4
from engine.chat.deepseek_v4_turns import DeepseekV4Layout
from engine.chat.segments import plain_text
from tests.server.api.rendering import render

PATH = Path(__file__).parents[2] / "fixtures" / "prompt" / "requests.json.xz"
CASES = json.loads(lzma.open(PATH).read())["cases"]
APIS = {"chat": Api.CHAT, "responses": Api.RESPONSES, "messages": Api.MESSAGES}
MODEL = ServedModel.of_format("DeepSeek-V4-Pro", 1 << 20, "deepseek_v4", can_think=True)
ACCEPTED = [case for case in CASES if "ok" in case]
REFUSED = [case for case in CASES if "error" in case]


def by_name(case: dict) -> str:
    return case["name"]


def parsed(case: dict) -> ApiRequest:
    return parse(APIS[case["protocol"]], json.dumps(case["body"]).encode(), MODEL)


@pytest.mark.parametrize("case", ACCEPTED, ids=by_name)
def test_prompt_is_that_of_the_recipe(case: dict) -> None:
    prompt = render(parsed(case), DeepseekV4Layout(DEEPSEEK_V4))
    assert plain_text(prompt) == case["ok"]["prompt"]


@pytest.mark.parametrize("case", ACCEPTED, ids=by_name)
def test_options_are_those_of_the_recipe(case: dict) -> None:
    request, expected = parsed(case), case["ok"]
    assert request.model == case["body"]["model"]
    assert request.thinking == expected["thinking_mode"]
    assert request.conversation.effort == expected["reasoning_effort"]
    assert request.conversation.tool_choice == expected["tool_choice"]
    assert request.sampling.temperature == expected["temperature"]
    assert request.sampling.top_p == pytest.approx(expected["top_p"], abs=1e-6)  # a 32-bit float
    assert request.max_tokens == expected["max_tokens"]
    assert request.stream == expected["stream"]
    is_json = request.conversation.response_format is not None
    assert is_json == (expected["response_format"] != "text")


@pytest.mark.parametrize("case", ACCEPTED, ids=by_name)
def test_what_the_reply_must_be_is_that_of_the_recipe(case: dict) -> None:
    request, expected = parsed(case), case["ok"]["output_constraint"]
    rule = request.reply_rule()
    match expected:
        case None:
            assert not rule.tools and rule.answer_schema is None
        case {"kind": "json", "schema": schema}:
            assert rule.answer_schema == (json.loads(schema) if schema else {"type": "object"})
        case {"kind": "tool_call", "schema": schema}:
            functions = [tool["function"] for tool in json.loads(schema)]
            assert not rule.must_call
            assert [(t.name, t.description, t.parameters) for t in rule.tools] == [
                (f["name"], f["description"], f["parameters"]) for f in functions
            ]
        case _:
            pytest.fail(f"the fixtures have a new kind of constraint: {expected['kind']}")


@pytest.mark.parametrize("case", REFUSED, ids=by_name)
def test_refused_with_the_words_of_the_recipe(case: dict) -> None:
    with pytest.raises(ApiError) as caught:
        parsed(case)
    error, expected = caught.value, case["error"]
    assert error.status == (expected["status"] or 400)
    body = error.body(APIS[case["protocol"]])["error"]
    if expected["status"] is None:  # there it is no request at all; the words are the reader's
        assert "role" in body["message"] and body["param"] == "messages[0].role"
        return
    assert body["message"] == expected["body"]["error"]["message"]
    assert body["type"] == body["code"] == expected["body"]["error"]["type"]


def test_every_fixture_is_used() -> None:
    assert len(ACCEPTED) + len(REFUSED) == len(CASES) == 39
