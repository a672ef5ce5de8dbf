"""Titles and ids against vectors of the format's description."""

import pytest

from sessions.identity import (
    is_session_id,
    normalise_title,
    session_id,
    text_id,
    title_of_text,
)


@pytest.mark.parametrize(
    ("title", "created_at", "expected"),
    [
        ("Fix the build", 1779364800, "07d7132e06162fed4b1dc67d6ccbe31f0a5ca634"),
        ("", 1779364800, "bd96de4880ee946f3b7ffe500e98f94493f19993"),
        ("Größe prüfen", 1779800000, "506987acb06ef40ea14c1320bac21946a376eb76"),
        ("(no user prompt)", 1779364800, "480a5f8542ebce87b93288cecae4af1b38a1bc31"),
    ],
)
def test_session_id_vector(title: str, created_at: int, expected: str) -> None:
    assert session_id(title.encode(), created_at) == expected
    assert is_session_id(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        ("hello", "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"),
        ("<｜begin▁of▁sentence｜>", "055231515d4e447b175cce68be24d059d943ce6f"),
        (
            "<｜begin▁of▁sentence｜>You are helpful.<｜User｜>Hi<｜Assistant｜></think>",
            "449df399d6c9a1f70f49135f6150bcddaf4f32d7",
        ),
    ],
)
def test_text_id_vector(text: str, expected: str) -> None:
    assert text_id(text.encode()) == expected


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Fix  the\nbuild", "Fix the build"),
        (" \t\n\v\f\r one \r\n two\t", "one two"),
        ("", "(empty user prompt)"),
        (" \n", "(empty user prompt)"),
        ("\u00a0a\u2003b", "\u00a0a\u2003b"),  # other whitespace is part of the text
        ("x" * 5000, "x" * 5000),
        ("lone \ud800 surrogate", "lone ? surrogate"),
    ],
)
def test_title_is_one_line(prompt: str, expected: str) -> None:
    assert normalise_title(prompt) == expected
    assert normalise_title(expected) == expected


@pytest.mark.parametrize("text", ["", "07d7", "A" * 40, "g" * 40, "0" * 41, "0" * 40 + "\n"])
def test_other_text_is_no_session_id(text: str) -> None:
    assert not is_session_id(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "<｜begin▁of▁sentence｜>S<｜User｜>Fix  the\nbuild<｜Assistant｜></think>ok",
            "Fix the build",
        ),
        ("S<｜User｜>one<｜User｜>two", "one"),
        ("S<｜User｜> \n<｜Assistant｜>", "(empty user prompt)"),
        ("S<｜User｜>unfinished", "unfinished"),
        ("a system prompt and nothing else", "(no user prompt)"),
    ],
)
def test_title_of_a_text_is_its_first_prompt(text: str, expected: str) -> None:
    assert title_of_text(text.encode()) == expected
