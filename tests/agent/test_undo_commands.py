"""/undo, /redo and /diff around real turns."""

import hashlib
import os

from ds4agent import paths
from ds4agent.agent.approval import ApprovalPolicy
from ds4agent.agent.compaction import _note
from ds4agent.agent.file_history import undo_folder
from ds4agent.commands import CommandTable
from ds4agent.events import DiffShown, FilesRestored, Notice, Phase, PhaseChanged
from ds4agent.permissions.rules import Verdict
from ds4agent.requests import Mode, Redo, Rewind, ShowDiff, Start, Submit, Undo
from engine.chat.format import HistoryItem
from tests.agent.conftest import call, words
from tools.base import Access

REPLIES = [
    call("write", path="new/a.txt", content="one\n"),
    "Made it.",
    call("edit", path="notes.txt", old="alpha", new="omega"),
    "Changed it.",
]


def test_turns_are_undone_redone_and_shown(open_rig, workspace) -> None:
    rig = open_rig(REPLIES)
    rig.ready()
    rig.turn("make a file")
    rig.turn("change the notes")
    rig.wait_idle()
    rig.send(ShowDiff())
    assert "-alpha\n+omega" in rig.wait(DiffShown).diff
    rig.send(Undo())
    done = rig.wait(FilesRestored)
    assert (done.action, done.title, done.paths) == ("undone", "change the notes", ("notes.txt",))
    assert (workspace / "notes.txt").read_text(encoding="utf-8") == "alpha\nbeta\n"
    rig.wait_idle()
    rig.send(Undo())
    assert rig.wait(FilesRestored).title == "make a file"
    assert not (workspace / "new").exists()
    rig.wait_idle()
    rig.send(Undo())
    assert "nothing to undo" in rig.wait(Notice).text
    rig.wait_idle()
    rig.send(Redo())
    assert rig.wait(FilesRestored).action == "redone"
    assert (workspace / "new/a.txt").read_text(encoding="utf-8") == "one\n"
    rig.wait_idle()
    rig.send(ShowDiff(is_whole=True))
    assert "+one" in rig.wait(DiffShown).diff


def test_undo_works_in_the_next_run(open_rig, workspace) -> None:
    first = open_rig(REPLIES[:2])
    first.ready()
    first.turn("make a file")
    first.close()
    second = open_rig([])
    second.ready()
    second.send(Undo())
    assert second.wait(FilesRestored).paths == ("new", "new/a.txt")
    assert not (workspace / "new").exists()


def test_file_the_person_changed_is_left_and_named(open_rig, workspace) -> None:
    rig = open_rig(REPLIES[2:])
    rig.ready()
    rig.turn("change the notes")
    rig.wait_idle()
    (workspace / "notes.txt").write_text("mine\n", encoding="utf-8")
    rig.send(Undo())
    notice = rig.wait(Notice, lambda event: event.level == "warning")
    assert "notes.txt was changed since" in notice.text.lower()
    assert (workspace / "notes.txt").read_text(encoding="utf-8") == "mine\n"


def test_undo_waits_for_the_end_of_a_turn(open_rig) -> None:
    rig = open_rig([words(100)], delay_s=0.01)
    rig.ready()
    rig.send(Submit("talk"))
    rig.wait(PhaseChanged, lambda event: event.phase is Phase.GENERATING)
    rig.send(Undo())
    assert "a turn is running" in rig.wait(Notice).text
    rig.worker.interrupt()


def test_log_lies_outside_of_the_project_and_of_its_version_control(open_rig, workspace) -> None:
    rig = open_rig(REPLIES[:2])
    rig.ready()
    rig.turn("make a file")
    rig.close()
    folder = undo_folder(workspace)
    assert folder.is_relative_to(paths.undo_dir()) and (folder / "journal.jsonl").is_file()
    assert folder.stat().st_mode & 0o077 == 0
    assert {path.name for path in workspace.rglob("*")} == {"notes.txt", "new", "a.txt"}
    name = hashlib.sha256(os.fsencode(os.path.realpath(workspace))).hexdigest()[:20]
    assert folder.name == name


def test_plan_and_files_of_several_edits_survive_a_compaction() -> None:
    steps = [{"text": "look", "status": "done"}, {"text": "mend", "status": "doing"}]
    before = [
        HistoryItem("user", "mend it"),
        HistoryItem("call", "", "todo", {"items": [{"text": "old", "status": "doing"}]}),
        HistoryItem("call", "", "todo", {"items": steps}),
        HistoryItem("call", "", "multi_edit", {"path": "a.py", "edits": []}),
        HistoryItem("assistant", "Next."),
    ]
    note = _note("", before, is_answered=False)
    assert "- done: look\n- doing: mend" in note and "old" not in note and "- a.py" in note
    again = _note("", [HistoryItem("user", note)], is_answered=False)
    assert again == note


def test_commands_are_parsed() -> None:
    parse = CommandTable().parse
    assert parse("/undo")[1] == Undo() and parse("/redo")[1] == Redo()
    assert parse("/diff")[1] == ShowDiff() and parse("/diff all")[1] == ShowDiff(is_whole=True)


def test_commit_is_asked_about_also_where_commands_run_freely() -> None:
    policy = ApprovalPolicy(is_sandboxed=True)
    verdicts = {
        mode: policy.decide("git_commit", Access.HISTORY, mode, "message").verdict for mode in Mode
    }
    assert verdicts == {
        Mode.PLAN: Verdict.DENY,
        Mode.ASK: Verdict.ASK,
        Mode.AUTO: Verdict.ASK,
        Mode.FULL: Verdict.ALLOW,
    }


def test_rewind_restores_files_where_that_is_asked_for(open_rig, workspace) -> None:
    rig = open_rig([*REPLIES, "Fine.", "Again."])
    rig.ready()
    rig.turn("make a file")
    rig.turn("change the notes")
    rig.wait_idle()
    rig.send(Rewind(1))
    rig.ready()
    assert (workspace / "notes.txt").read_text(encoding="utf-8") == "omega\nbeta\n"
    rig.turn("fine?")
    rig.wait_idle()
    rig.send(Rewind(2, with_files=True))
    assert set(rig.wait(FilesRestored).paths) == {"new", "new/a.txt", "notes.txt"}
    assert (workspace / "notes.txt").read_text(encoding="utf-8") == "alpha\nbeta\n"
    assert not (workspace / "new").exists()


def test_rewind_beyond_this_run_leaves_the_files_and_says_so(open_rig, workspace, tmp_path) -> None:
    first = open_rig(REPLIES[:2], store_folder=tmp_path / "kv")
    first.ready()
    end = first.turn("make a file")
    first.close()
    start = Start(resume_id=end.session_id)
    second = open_rig(["Fine."], store_folder=tmp_path / "kv", start=start)
    second.ready()
    second.turn("fine?")
    second.wait_idle()
    second.send(Rewind(2, with_files=True))
    assert "The files stay" in second.wait(Notice, lambda e: e.level == "warning").text
    assert (workspace / "new/a.txt").exists()
