"""How a small model is led: what it is shown, what it is forced to, and what is done unasked."""

from dataclasses import replace
from pathlib import Path

import pytest

from ds4agent.agent.nudges import asks_for_change
from ds4agent.agent.profiles import verification
from ds4agent.agent.profiles.choose import choose
from ds4agent.agent.profiles.full import FULL
from ds4agent.agent.profiles.small import SMALL as PROFILE
from ds4agent.errors import ConfigError
from ds4agent.events import ApprovalNeeded, Outcome, ToolFinished, TurnEnded
from ds4agent.requests import Answer, Mode, Submit
from tests.agent.conftest import call
from tests.fakes.scripted_model import scripted_engine

SMALL = 1_500_000_000  # parameters
ADD = "def add(a, b):\n    return a - b\n"
FIXED = "calc.py\n```\ndef add(a, b):\n    return a + b\n```"


@pytest.fixture
def calc(workspace: Path) -> Path:
    path = workspace / "calc.py"
    path.write_text(ADD, encoding="utf-8")
    return path


def block(path: str, text: str) -> str:
    return f"{path}\n```\n{text}```"


def test_profile_follows_from_the_model_and_a_setting_overrules_it() -> None:
    info = scripted_engine([]).info
    assert choose(info) is FULL  # of unknown size
    assert choose(replace(info, n_params=SMALL)) is PROFILE
    assert choose(replace(info, n_params=7 * 10**9)) is FULL
    assert choose(replace(info, n_params=SMALL, family="deepseek_v4")) is FULL
    assert choose(replace(info, n_params=SMALL), "full") is FULL
    assert choose(info, "small") is PROFILE
    with pytest.raises(ConfigError, match="no profile"):
        choose(info, "tiny")


def test_named_file_comes_whole_before_the_task_which_is_last(open_rig, calc) -> None:
    rig = open_rig([FIXED], n_params=SMALL)
    rig.ready()
    rig.turn("Make add in calc.py add.")
    message = rig.said().partition("<|im_end|>")[0]
    assert message.startswith(
        f"<|im_start|>user\ncalc.py\n```\n{ADD}```\n\nFiles: calc.py (2 lines)"
    )
    assert message.endswith("\n\nMake add in calc.py add.")
    assert "alpha" not in message  # notes.txt is not named


def test_file_block_is_written_at_once_and_ends_the_turn(open_rig, calc) -> None:
    rig = open_rig([FIXED, "Never asked for."], n_params=SMALL)
    rig.ready()
    assert rig.turn("Make add in calc.py add.").outcome is Outcome.DONE
    assert calc.read_text() == ADD.replace("-", "+")
    assert "Never asked for." not in rig.said()
    written = rig.of(ToolFinished)[0]
    assert written.name == "write" and written.ok and "+    return a + b" in written.diff


def test_file_block_of_listing_after_listing_is_ended_soon_and_not_written(
    open_rig, workspace
) -> None:
    rig = open_rig(["README.md\n````\n# Tally\n" + "```sh\nmake\n```\n" * 300], n_params=SMALL)
    rig.ready()
    end = rig.turn("Write README.md for this project.")
    assert end.outcome is Outcome.LIMIT and "repeats itself" in end.error
    assert 512 < end.usage.generated_tokens < 1024
    assert not (workspace / "README.md").exists()


def test_answer_is_forced_to_begin_as_one_of_the_named_files(open_rig, calc) -> None:
    # The script's words cannot be said: the reply is a file, whatever the model would like.
    rig = open_rig(["Sure! You could add them instead."], n_params=SMALL, max_tokens=64)
    rig.ready()
    rig.turn("Make add in calc.py add.")
    answer = rig.said().partition("<|im_start|>assistant\n")[2]
    assert answer.startswith("calc.py\n```")


def test_block_asks_as_the_write_tool_does(open_rig, calc) -> None:
    rig = open_rig([FIXED, "As you like."], n_params=SMALL, mode=Mode.ASK)
    rig.ready()
    rig.send(Submit("Make add in calc.py add."))
    asked = rig.wait(ApprovalNeeded)
    assert asked.name == "write" and calc.read_text() == ADD
    rig.send(Answer(asked.call_id, approved=False))
    assert rig.wait(TurnEnded).outcome is Outcome.DONE
    assert calc.read_text() == ADD and len(rig.of(ApprovalNeeded)) == 1  # a no is a no


def test_nothing_is_written_in_plan_mode_or_for_a_question(open_rig, calc) -> None:
    for mode, text in ((Mode.PLAN, "Make add in calc.py add."), (Mode.AUTO, "What is in calc.py?")):
        rig = open_rig([FIXED], n_params=SMALL, mode=mode)
        rig.ready()
        rig.turn(text)
        assert not rig.of(ToolFinished) and calc.read_text() == ADD


def test_missing_file_that_was_named_is_asked_for_once_more(open_rig, calc, workspace) -> None:
    rig = open_rig([FIXED, block("main.py", "import calc\n")], n_params=SMALL)
    rig.ready()
    assert rig.turn("Correct calc.py and write main.py.").outcome is Outcome.DONE
    assert "main.py is still to be written. Write it now." in rig.said()
    assert (workspace / "main.py").read_text() == "import calc\n"


def test_function_that_a_new_text_left_out_is_asked_for(open_rig, calc) -> None:
    both = ADD + "\n\ndef twice(a):\n    return 2 * a\n"
    calc.write_text(both, encoding="utf-8")
    right = both.replace("-", "+")
    rig = open_rig([FIXED, block("calc.py", right)], n_params=SMALL)
    rig.ready()
    assert rig.turn("Make add in calc.py add.").outcome is Outcome.DONE
    assert "twice is missing in calc.py now and must stay." in rig.said()
    assert calc.read_text() == right


def test_unchanged_file_is_told(open_rig, calc) -> None:
    rig = open_rig([block("calc.py", ADD), FIXED], n_params=SMALL)
    rig.ready()
    rig.turn("Make add in calc.py add.")
    assert "nothing has changed" in rig.said() and "+" in calc.read_text()


def test_same_text_again_is_dropped_and_sampled_anew(open_rig, calc) -> None:
    same = block("calc.py", ADD)
    rig = open_rig([same, same], n_params=SMALL)
    rig.ready()
    end = rig.turn("Make add in calc.py add.")
    assert end.outcome is Outcome.ERROR and "same write call 4 times" in end.error
    assert len(rig.of(ToolFinished)) == 4  # the first, and each repair
    assert rig.said().count("calc.py\n```") == 3  # the message, the first answer and the last


def test_test_beside_a_changed_file_is_run_unasked_and_its_end_is_told(
    open_rig, calc, workspace, sandbox
) -> None:
    (workspace / "test_calc.py").write_text(
        "from calc import add\n\n\ndef test_add():\n    assert add(2, 2) == 4\n", encoding="utf-8"
    )
    wrong = block("calc.py", "def add(a, b):\n    return a * b + 1\n")
    rig = open_rig([wrong, FIXED], n_params=SMALL)
    rig.ready()
    assert rig.turn("Make add in calc.py add.").outcome is Outcome.DONE
    assert [(done.name, done.ok) for done in rig.of(ToolFinished)] == [
        ("write", True), ("bash", False), ("write", True), ("bash", True), ("bash", True),
    ]  # fmt: skip
    assert "test_calc.py fails:" in rig.said() and "AssertionError" in rig.said()
    assert calc.read_text() == ADD.replace("-", "+")


def test_missed_edit_is_dropped_and_the_file_is_written_whole(open_rig, calc, workspace) -> None:
    calc.write_text(ADD + "#" * 9000 + "\n", encoding="utf-8")  # too long to be shown at once
    (workspace / "small.py").write_text(ADD, encoding="utf-8")
    missed = call("edit", path="small.py", old="no such line", new="x")
    fixed = block("small.py", ADD.replace("-", "+"))
    rig = open_rig([missed], n_params=SMALL, answers={"Write small.py": fixed})
    rig.ready()
    assert rig.turn("Make add add in small.py and in calc.py.").outcome is Outcome.DONE
    assert "no such line" not in rig.said()  # the exchange is no part of the conversation
    assert "Write small.py as it shall be, whole." in rig.said()
    assert "+" in (workspace / "small.py").read_text()


def test_file_that_was_never_shown_is_not_overwritten_blindly(open_rig, calc, workspace) -> None:
    (workspace / "other.py").write_text("y = 1\n", encoding="utf-8")
    (workspace / "long.py").write_text("#" * 9000 + "\n", encoding="utf-8")
    write = call("write", path="other.py", content="x = 2\n")
    rig = open_rig([write, "I see."], n_params=SMALL)
    rig.ready()
    rig.turn("What is x?")  # free: the call is understood though it is not offered
    first = rig.of(ToolFinished)[0]
    assert not first.ok and "was not read" in first.text
    assert (workspace / "other.py").read_text() == "y = 1\n"


def test_result_is_followed_by_a_call_a_file_or_words_never_by_another_result(open_rig) -> None:
    read = call("read", path="notes.txt")
    rig = open_rig([read, "<tool_response>\nalpha"], n_params=SMALL, max_tokens=200)
    rig.ready()
    rig.turn("what is in the notes?")
    answer = rig.said().rpartition("<|im_start|>assistant\n")[2]
    assert not answer.startswith("<tool_response>")


@pytest.mark.parametrize(
    ("task", "asks"),
    [
        ("Fix a.py.", True),
        ("How many lines has it? Write the number into n.txt.", True),
        ("Can you add a test?", True),
        ("a.py is wrong: please correct it", True),
        ("Explain what update does in a.py.", False),
        ("What would change?", False),
        ("How do I fix the bug?", False),
        ("Show me the set of names.", False),
    ],
)
def test_request_for_a_change_is_told_from_a_question(task, asks) -> None:
    assert asks_for_change(task) is asks


def test_commands_are_tests_first_and_only_what_was_named_or_changed() -> None:
    texts = {
        "a.py": "def f(): ...\n",
        "main.py": "import a\n",
        "other.py": "import a\n",
        "test_a.py": "import unittest\n",
        "run me.sh": "#!/bin/bash\n",
    }
    found = verification.commands(["a.py"], ["main.py", "run me.sh"], list(texts), texts.get)
    assert [command.line for command in found] == [
        "python3 -m unittest test_a.py", "python3 main.py", "python3 a.py",
    ]  # fmt: skip
    (shell,) = verification.commands(["run me.sh"], [], list(texts), texts.get)
    assert shell.line == "bash 'run me.sh'"


def test_spoiled_and_elided_files_are_seen() -> None:
    assert "line 1" in verification.spoiled("a.py", "def f(:\n")
    assert "no valid JSON" in verification.spoiled("a.json", "{")
    assert verification.spoiled("a.txt", "{") == ""
    assert "nothing left out" in verification.lost("a.py", "+# ... rest of the code\n", "fix")
    assert verification.lost("a.py", "-def old(x):\n+def new(x):\n", "rename old to new") == ""
