"""Rows of Markdown: what they look like, and that growing piece by piece changes nothing."""

import random

import pytest
from rich.cells import cell_len
from textual.highlight import HighlightTheme

from ds4agent.events import TextDelta, ToolFinished
from ds4agent.tui.markdown import Row, parse
from ds4agent.tui.widgets.answer import Answer, _unit_rows
from tests.tui.screen import until_shown

SAMPLE = """\
# Title

A paragraph with **bold**, *italic*, `code` and a [link](https://example.org/x),
that goes on in a second line.

1. first
2. second
   - nested one
   - nested two

   with a paragraph
10. tenth

- [ ] open
* another list

> quoted text
> goes on

| name | bytes |
|------|------:|
| a    | 12    |
| long name of a thing | 3 |

```python
def f(x):

    return "1. not a list"
```

---

vector<int> is <b>text</b>; 日本語 and 👍🏽 stay whole.
"""


def whole(text: str, width: int) -> list[Row]:
    rows: list[Row] = []
    for unit in parse(text):
        rows += _unit_rows(unit, width, HighlightTheme, is_first=not rows)
    return rows


def plain(rows: list[Row]) -> list[str]:
    return [row.text.plain.rstrip() for row in rows]


def test_rows_of_a_sample():
    assert plain(whole(SAMPLE, 40)) == [
        "Title",
        "",
        "A paragraph with bold, italic, code and",
        "a link, that goes on in a second line.",
        "",
        "1. first",
        "2. second",
        "   ◦ nested one",
        "   ◦ nested two",
        "",
        "   with a paragraph",
        "10. tenth",
        "",
        "• [ ] open",
        "",
        "• another list",
        "",
        "▎ quoted text goes on",
        "",
        "name                 │ bytes",
        "─────────────────────┼──────",
        "a                    │ 12",
        "long name of a thing │ 3",
        "",
        "def f(x):",
        "",
        '    return "1. not a list"',
        "",
        "─" * 40,
        "",
        "vector<int> is <b>text</b>; 日本語 and",
        "👍🏽 stay whole.",
    ]


@pytest.mark.parametrize("width", [1, 2, 7, 20, 80])
def test_rows_fit_their_width(width):
    for row in whole(SAMPLE, width):
        # A wide character or a table's bars need two and more cells, however narrow it is.
        assert cell_len(row.text.plain) <= max(width, 8), row.text.plain


@pytest.mark.parametrize("seed", range(6))
async def test_growing_in_pieces_gives_the_rows_of_the_whole(open_screen, seed):
    chance = random.Random(seed)
    async with open_screen(size=(60, 20)) as (app, worker, pilot):
        start = 0
        while start < len(SAMPLE):
            size = chance.choice((1, 2, 5, 30, 200))
            await app.controller.apply([TextDelta(SAMPLE[start : start + size])])
            if chance.random() < 0.2:
                await pilot.pause()
            start += size
        await pilot.pause()
        answer = app.query_one(Answer)
        assert answer.source == SAMPLE
        rows = answer._rows_for(answer.size.width)
        assert plain(rows) == plain(whole(SAMPLE, answer.rows_width))
        assert plain(rows) == plain(answer.make_rows(answer.rows_width))


async def test_a_settled_part_is_never_parsed_again(open_screen, monkeypatch):
    lengths = []

    def counted(source, **options):
        lengths.append(len(source))
        return parse(source, **options)

    monkeypatch.setattr("ds4agent.tui.widgets.answer.parse", counted)
    async with open_screen() as (app, worker, pilot):
        for _ in range(300):
            await app.controller.apply([TextDelta("a sentence.\n\n- item\n- item\n\n")])
        assert max(lengths) < 100


async def test_the_text_of_an_answer_can_be_selected_without_its_padding(open_screen):
    async with open_screen(size=(60, 20)) as (app, worker, pilot):
        worker.emit(TextDelta("first\n\n```python\nx = 1\n```\n"))
        worker.emit(ToolFinished("call-1", "read", True, "read: a", "one line"))
        await until_shown(pilot, "x = 1")
        app.query_one(Answer).text_select_all()
        assert app.screen.get_selected_text() == "first\n\nx = 1"
        await pilot.pause()
