"""Files that a message mentions: attached as read, refused as read, and never by accident."""

from pathlib import Path

import pytest

from ds4agent.agent.mentions import expand
from ds4agent.events import Notice, Outcome, TurnStarted
from tests.agent.conftest import call
from tools.toolbox import Toolbox


@pytest.fixture
def toolbox(tmp_path: Path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.py").write_text(
        "".join(f"line {n}\n" for n in range(1, 31)), encoding="utf-8"
    )
    (tmp_path / "a name.txt").write_text("spaced\n", encoding="utf-8")
    (tmp_path / "logo.png").write_bytes(b"\x89PNG\r\n")
    (tmp_path / "data.bin").write_bytes(bytes(range(256)) * 4)
    opened = Toolbox(tmp_path, sandbox=None)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("text", "attached", "left_out"),
    [
        ("see @src/app.py", "30 line 30", "31 "),
        ("see @src/app.py.", "30 line 30", "31 "),
        ("(look) @src/app.py:10-12, please", "12 line 12", "13 line"),
        ("@src/app.py:7 is wrong", "7 line 7", "8 line"),
        ('@"a name.txt" is odd', "spaced", "2 "),
        ("what is in @src ?", "app.py", "line 1"),
        ("@src/app.py and @src/app.py", "30 line 30", "31 "),
    ],
)
def test_mentioned_file_goes_along(toolbox, text, attached, left_out) -> None:
    told: list[str] = []
    message = expand(text, toolbox, told.append)
    assert message.startswith(text + "\n\n[@")
    assert message.count("[@") == 1 and not told
    behind = message.removeprefix(text)
    assert attached in behind and left_out not in behind


@pytest.mark.parametrize(
    "text", ["mail me@example.com", "the @decorator", "@ alone", "a @later idea", "x@src/app.py"]
)
def test_what_is_no_file_stays_what_it_is(toolbox, text) -> None:
    told: list[str] = []
    assert expand(text, toolbox, told.append) == text
    assert not told


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("see @logo.png", "no images"),
        ("see @data.bin", "binary"),
        ("see @../secret.txt", "outside"),
        ("see @/etc/passwd", "outside"),
        ("see @src/missing.py", "missing.py"),
    ],
)
def test_what_cannot_be_attached_is_told_with_the_reason(toolbox, text, why) -> None:
    told: list[str] = []
    assert expand(text, toolbox, told.append) == text
    assert len(told) == 1 and why in told[0]


def test_only_so_many_are_attached(toolbox) -> None:
    told: list[str] = []
    text = " ".join(f"@src/app.py:{n}" for n in range(1, 20))
    assert expand(text, toolbox, told.append).count("[@") == 8
    assert len(told) == 1


def test_mentioned_file_counts_as_read_and_the_screen_shows_what_was_typed(
    open_rig, workspace
) -> None:
    rig = open_rig([call("write", path="notes.txt", content="gamma\n"), "Done."])
    rig.ready()
    assert rig.turn("replace @notes.txt").outcome is Outcome.DONE
    rig.wait_idle()
    assert "1 alpha" in rig.said()
    assert rig.of(TurnStarted)[0].text == "replace @notes.txt"
    assert (workspace / "notes.txt").read_text(encoding="utf-8") == "gamma\n"
    rig.turn("and @nothing.txt")
    assert any("nothing.txt" in notice.text for notice in rig.of(Notice))
