"""The question about a folder: asked once, before anything that it brings takes effect."""

import dataclasses
from pathlib import Path

import pytest

from ds4agent.agent.project import UntrustedProject, brought_by
from ds4agent.agent.settings import AgentSettings
from ds4agent.errors import ConfigError
from ds4agent.events import (
    ModeChanged,
    Notice,
    Ready,
    TrustDecided,
    TrustNeeded,
)
from ds4agent.permissions.trust import TrustFile
from ds4agent.requests import Mode, Quit, Trust


@pytest.fixture
def memory(workspace: Path, tmp_path: Path) -> TrustFile:
    return TrustFile(workspace, tmp_path / "trusted.toml")


@pytest.fixture
def project(workspace: Path, memory: TrustFile) -> UntrustedProject:
    (workspace / "AGENTS.md").write_text("Use tabs, says the project.", encoding="utf-8")
    settings = AgentSettings(cwd=workspace, mode=Mode.ASK, system_prompt_extra="Use tabs.")
    return UntrustedProject(workspace, ("AGENTS.md",), False, memory, lambda: settings)


def test_yes_is_remembered_and_what_it_brings_is_in_force(open_rig, project, memory) -> None:
    rig = open_rig(["Hello."], project=project)
    question = rig.wait(TrustNeeded)
    assert question == TrustNeeded(str(project.folder), ("AGENTS.md",))
    assert not rig.of(Ready)
    rig.send(Trust(True))
    assert rig.wait(TrustDecided).trusted
    ready = rig.ready()
    assert memory.read() is True
    assert ready.mode is Mode.ASK  # the project's own, narrower than AUTO
    assert "Use tabs." in rig.live_text()


def test_no_is_remembered_and_the_folder_is_read_only(open_rig, project, memory) -> None:
    rig = open_rig(["Hello."], project=project)
    rig.wait(TrustNeeded)
    rig.send(Trust(False))
    assert not rig.wait(TrustDecided).trusted
    assert rig.ready().mode is Mode.PLAN
    assert memory.read() is False
    assert "Use tabs." not in rig.live_text()
    assert any("AGENTS.md" in event.text for event in rig.of(Notice))


def test_not_this_time_is_not_remembered(open_rig, project, memory) -> None:
    rig = open_rig(["Hello."], project=project)
    rig.wait(TrustNeeded)
    rig.send(Trust(False, is_remembered=False))
    rig.ready()
    assert memory.read() is None


def test_a_mode_that_was_asked_for_stays(open_rig, project) -> None:
    rig = open_rig(["Hello."], project=dataclasses.replace(project, keeps_mode=True))
    rig.wait(TrustNeeded)
    rig.send(Trust(False))
    assert rig.ready().mode is Mode.AUTO


def test_trust_never_widens_the_mode(open_rig, project, workspace) -> None:
    rig = open_rig(["Hello."], project=project, mode=Mode.PLAN)
    rig.wait(TrustNeeded)
    rig.send(Trust(True))
    assert rig.ready().mode is Mode.PLAN
    assert not rig.of(ModeChanged)


@pytest.mark.parametrize("how", ["headless", "refused"])
def test_where_nobody_is_asked_nothing_is_used_and_that_is_told(open_rig, project, how) -> None:
    project = dataclasses.replace(project, was_refused=how == "refused")
    rig = open_rig(["Hello."], project=project, headless=how == "headless")
    rig.ready()
    assert not rig.of(TrustNeeded)
    assert "Use tabs." not in rig.live_text()
    (notice,) = rig.of(Notice)
    assert "AGENTS.md of this folder is not used" in notice.text and "--trust" in notice.text


def test_a_mistake_of_the_project_is_told_and_asked_about_again(open_rig, project, memory) -> None:
    def broken() -> AgentSettings:
        raise ConfigError("a project may not set model", "Remove the line.")

    rig = open_rig(["Hello."], project=dataclasses.replace(project, with_project=broken))
    rig.wait(TrustNeeded)
    rig.send(Trust(True))
    assert not rig.wait(TrustDecided).trusted
    rig.ready()
    assert memory.read() is None
    assert any("may not set model" in event.text for event in rig.of(Notice))


def test_quit_ends_an_open_question(open_rig, project, memory) -> None:
    rig = open_rig(["Hello."], project=project)
    rig.wait(TrustNeeded)
    rig.close()
    assert memory.read() is None and not rig.of(Ready)


def test_unasked_it_holds_from_the_next_start(open_rig, project, memory) -> None:
    rig = open_rig(["Hello."], project=dataclasses.replace(project, was_refused=True))
    rig.ready()
    rig.send(Trust(True))
    rig.wait(Notice, lambda event: "From the next start" in event.text)
    assert memory.read() is True
    rig.send(Quit())


def test_what_was_not_remembered_is_not_promised(open_rig, project, tmp_path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    memory = TrustFile(project.folder, tmp_path / "file" / "trusted.toml")
    refused = dataclasses.replace(project, was_refused=True, memory=memory)
    rig = open_rig(["Hello."], project=refused)
    rig.ready()
    rig.send(Trust(True))
    rig.wait(Notice, lambda event: event.text.startswith("Not remembered: cannot write beside"))
    rig.turn("hello")
    assert not [event for event in rig.of(Notice) if "From the next start" in event.text]


def test_what_a_folder_brings_is_named(workspace: Path) -> None:
    assert brought_by(workspace) == ()
    (workspace / ".git").mkdir()
    (workspace / "AGENTS.md").write_text("x", encoding="utf-8")
    commands = workspace / ".ds4" / "commands"
    commands.mkdir(parents=True)
    for n in range(9):
        (commands / f"c{n}\x1b[31m.md").write_text("x", encoding="utf-8")
    inner = workspace / "inner"
    inner.mkdir()
    names = brought_by(inner)
    assert names[0] == "AGENTS.md" and names[-1] == "2 more files"
    assert not any("\x1b" in name for name in names)
