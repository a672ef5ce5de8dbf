"""The inline mode without a terminal: events in, printed text and commands out."""

import io

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from ds4agent.commands import CommandTable
from ds4agent.completion.file_index import FileIndex
from ds4agent.completion.suggest import Completer as Sources
from ds4agent.events import (
    ApprovalNeeded,
    Closed,
    HistoryEntry,
    Notice,
    Outcome,
    Phase,
    PhaseChanged,
    QueueChanged,
    TextDelta,
    ThinkingDelta,
    ToolCallReady,
    ToolFinished,
    TrustNeeded,
    TurnEnded,
    TurnStarted,
    Usage,
)
from ds4agent.inline.blocks import BlockCutter
from ds4agent.inline.editor import LineCompleter
from ds4agent.inline.paper import Paper, RichPaper
from ds4agent.inline.session import GUARD_S, InlineSession
from ds4agent.inline.terminal import is_bare
from ds4agent.requests import Answer, Mode, Quit, SetMode, Submit, TakeBackQueued, Trust
from tests.tui.fake_worker import FakeWorker, ready

QUESTION = ApprovalNeeded("call-1", "bash", "bash: ls", "ls", "", False, "bash(=ls)")


class Inline:
    def __init__(self, rich: bool = False, **options) -> None:
        self.out = io.StringIO()
        self.worker = FakeWorker()
        self.copied: list[str] = []
        paper = RichPaper(self.out, width=60) if rich else Paper(self.out)
        self.session = InlineSession(self.worker, paper, CommandTable(), copy=self._copy, **options)
        self.take(ready(), PhaseChanged(Phase.IDLE))

    def _copy(self, text: str) -> bool:
        self.copied.append(text)
        return True

    def take(self, *events) -> None:
        for event in events:
            self.session.take(event)

    @property
    def text(self) -> str:
        return self.out.getvalue()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch):
    class Clock:
        now = 100.0

    monkeypatch.setattr("ds4agent.inline.session.time.monotonic", lambda: Clock.now)
    return Clock


def test_a_turn_is_printed_in_order_without_echoing_what_was_typed():
    inline = Inline()
    inline.session.typed("what is here?")
    inline.take(
        TurnStarted("what is here?"),
        ThinkingDelta("i look "),
        ThinkingDelta("around"),
        TextDelta("Let me "),
        TextDelta("see.\n"),
        ToolCallReady("call-1", "bash", {"command": "ls"}, "bash: ls"),
        ToolFinished("call-1", "bash", True, "bash: ls", "\n".join(map(str, range(20)))),
        TextDelta("Twenty files."),
        TurnEnded(Outcome.DONE, Usage(generated_tokens=7)),
        PhaseChanged(Phase.IDLE),
    )
    shown = inline.text
    order = [
        "thought, 3 words",
        "Let me see.\n",
        "● bash: ls\n",
        "✓ bash: ls",
        "  0\n",
        "  7\n",
        "… 12 more lines",
        "Twenty files.\n",
        "7 tokens",
    ]
    places = [shown.index(part) for part in order]
    assert places == sorted(places)
    assert "> what is here?" not in shown
    assert inline.worker.commands == [Submit("what is here?")]


def test_messages_that_were_queued_are_printed_when_they_are_delivered():
    inline = Inline()
    inline.take(TurnStarted("from the command line"), QueueChanged(("more",)))
    assert "> from the command line" in inline.text
    assert "queued: more" in inline.text


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y", Answer("call-1", True)),
        ("always", Answer("call-1", True, always=True)),
        ("n not there", Answer("call-1", False, reason="not there")),
    ],
)
def test_a_question_is_answered_by_a_line(clock, line, answer):
    inline = Inline()
    inline.take(TurnStarted("go"), QUESTION)
    assert "? Allow bash: ls?" in inline.text
    assert "always means: bash(=ls)" in inline.text
    clock.now += GUARD_S
    inline.session.typed("perhaps")
    assert inline.session.is_asking
    inline.session.typed(line)
    assert inline.worker.commands == [answer]
    assert not inline.session.is_asking


def test_a_line_that_was_on_its_way_is_no_answer(clock):
    inline = Inline()
    inline.take(TurnStarted("go"), QUESTION)
    clock.now += GUARD_S / 2
    inline.session.typed("y")
    assert inline.session.is_asking
    assert inline.worker.commands == [Submit("y")]


@pytest.mark.parametrize(
    ("line", "answer"),
    [("y", Trust(True)), ("n", Trust(False)), ("", Trust(False, is_remembered=False))],
)
def test_trust_is_asked(clock, line, answer):
    inline = Inline()
    inline.take(TrustNeeded("/project", ("AGENTS.md",)))
    clock.now += GUARD_S
    inline.session.typed(line)
    assert inline.worker.commands == [answer]


def test_ctrl_c_interrupts_then_clears_then_quits_at_the_second_press(clock):
    inline = Inline()
    inline.take(TurnStarted("go"))
    assert inline.session.ctrl_c(has_text=True)
    assert inline.worker.interrupts == 1
    inline.take(TurnEnded(Outcome.INTERRUPTED, Usage()), PhaseChanged(Phase.IDLE))
    assert not inline.session.ctrl_c(has_text=True)  # the editor clears the line
    inline.session.ctrl_c()
    assert Quit() not in inline.worker.commands
    clock.now += 1.0
    inline.session.ctrl_c()
    assert inline.worker.commands == [Quit()]


def test_commands_of_the_registry_work():
    inline = Inline()
    inline.session.typed("/mode auto")
    inline.session.typed("/nonsense")
    inline.session.typed("/theme dark")
    inline.session.typed("/help")
    inline.take(TextDelta("```\ncode\n```\n"))
    inline.session.typed("/copy code")
    inline.session.typed("/quit")
    assert inline.worker.commands == [SetMode(Mode.AUTO), Quit()]
    for part in ("there is no command /nonsense", "belongs to the full screen", "/compact"):
        assert part in inline.text
    assert inline.copied == ["code\n"]


def test_an_opened_conversation_shows_its_end():
    inline = Inline()
    history = tuple(HistoryEntry("user", f"question {n}") for n in range(40))
    inline.take(ready(history=history, title="Long"))
    assert "question 39" in inline.text
    assert "question 3\n" not in inline.text
    assert "28 earlier parts" in inline.text


def test_control_sequences_are_inert_in_both_papers():
    nasty = "\x1b]0;title\x07\x1b[2J[bold]x[/bold] \x9b31m"
    for rich in (False, True):
        inline = Inline(rich)
        inline.take(
            TurnStarted(nasty),
            TextDelta(nasty + "\n\n" + nasty),
            ToolCallReady("c", "bash", {}, nasty, nasty),
            ToolFinished("c", "bash", False, nasty, nasty, nasty),
            QUESTION,
            Notice(nasty, "error"),
            TurnEnded(Outcome.ERROR, Usage(), error=nasty),
            Closed(),
        )
        assert "\x1b]" not in inline.text
        assert "\x1b[2J" not in inline.text
        assert "\x9b" not in inline.text
        assert "[bold]x[/bold]" in inline.text


def test_rich_paper_prints_a_block_as_soon_as_it_is_finished():
    inline = Inline(rich=True)
    inline.take(TurnStarted("go"), TextDelta("First **para"))
    assert "First" not in inline.text
    assert "First" in inline.session.status()
    inline.take(TextDelta("graph**.\n\nvector<int> is"))
    assert "First" in inline.text
    assert "**" not in inline.text
    inline.take(TextDelta(" text."), TurnEnded(Outcome.DONE, Usage()))
    assert "vector<int> is text." in inline.text


def test_blocks_are_cut_where_nothing_can_change_any_more():
    text = "# Head\n\npara\ngraph\n\n- a\n- b\n\n```\nx\n\ny\n```\n\nend"
    whole = ["# Head", "para\ngraph", "- a\n- b", "```\nx\n\ny\n```", "end"]
    for size in (1, 3, 7, len(text)):
        cutter = BlockCutter()
        blocks = []
        for start in range(0, len(text), size):
            blocks += cutter.feed(text[start : start + size])
        assert [*blocks, cutter.finish()] == whole


def test_dumb_terminals_are_bare():
    assert is_bare({"TERM": "dumb"})
    assert is_bare({})
    assert not is_bare({"TERM": "xterm-256color"})
    assert not is_bare({"TERM": "no-such-terminal"})


class Line:
    text = ""

    def edit(self, text: str, instead_of: str) -> None:
        if self.text == instead_of:
            self.text = text


def test_a_queued_message_is_taken_back_to_be_edited():
    line = Line()
    inline = Inline(edit=line.edit)
    inline.take(TurnStarted("go"), PhaseChanged(Phase.GENERATING))
    inline.session.take_back()
    assert not inline.worker.commands  # there is nothing
    inline.take(QueueChanged(("one",)), QueueChanged(("one", "two")))
    inline.session.take_back()
    assert inline.worker.commands == [TakeBackQueued()]
    assert not line.text
    inline.take(QueueChanged(("one",)))
    assert line.text == "two"
    assert "1 queued" in inline.session.status()
    assert "taken back: two" in inline.text


def test_a_queued_message_that_was_delivered_first_does_not_stay_in_the_line():
    line = Line()
    inline = Inline(edit=line.edit)
    inline.take(TurnStarted("go"), QueueChanged(("one",)))
    inline.session.take_back()
    inline.take(QueueChanged(()), TurnStarted("one"))
    assert line.text == ""
    inline.take(QueueChanged(("two",)), QueueChanged(()))
    assert line.text == ""


@pytest.mark.parametrize(
    ("text", "applied"),
    [
        ("/sav", ["/save"]),
        ("/mode p", ["/mode plan"]),
        ("see @par", ["see @parser.py "]),
        ("see @nope", []),
    ],
)
def test_tab_completes_what_the_full_screen_completes(tmp_path, text, applied):
    (tmp_path / "parser.py").write_text("", encoding="utf-8")
    (tmp_path / "lexer.py").write_text("", encoding="utf-8")
    completer = LineCompleter(Sources(CommandTable(), FileIndex(lambda: tmp_path)))
    document = Document(text, len(text))
    found = list(completer.get_completions(document, CompleteEvent(completion_requested=True)))
    assert [text[: len(text) + each.start_position] + each.text for each in found] == applied
