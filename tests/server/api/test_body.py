"""What is left of a body after it was read: finite, shallow, valid texts."""

import json

import pytest

from ds4agent.server.api.body import MAX_DEPTH, read_body
from ds4agent.server.api.errors import ApiError


@pytest.mark.parametrize("escape", [r"\ud800", r"\uDFFF", r"\uD83D x", r"\\\udead"])
def test_half_a_surrogate_pair_becomes_a_character_that_can_be_written(escape: str) -> None:
    text = f'{{"a": ["{escape}"], "{escape}": 1}}'
    for body in (text.encode(), json.loads(text)):
        value = read_body(body)
        assert "\ufffd" in value["a"][0]
        json.dumps(value, ensure_ascii=False).encode("utf-8")


@pytest.mark.parametrize("written", [r'"\ud83d\ude00"', r'"\uD83D\uDE00"', '"\U0001f600"'])
def test_a_whole_pair_stays(written: str) -> None:
    assert read_body(f'{{"a": {written}}}'.encode()) == {"a": "\U0001f600"}


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]")])
def test_the_deepest_body(opening: str, closing: str) -> None:
    def nested(n: int) -> bytes:
        return b'{"x":' + (opening * n + "1" + closing * n).encode() + b"}"

    assert read_body(nested(MAX_DEPTH - 1))
    with pytest.raises(ApiError, match="nested deeper than 256"):
        read_body(nested(MAX_DEPTH + 1))
