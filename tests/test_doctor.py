"""The doctor: what counts as able to run, the next step of each gap, and its JSON."""

import argparse
import json
import os
import shutil
from pathlib import Path

import pytest

from ds4agent import doctor, doctor_checks, paths
from ds4agent.doctor_checks import Finding
from mlx_kernels.cpu import native, native_library
from mlx_kernels.errors import DeviceError

TINY = Path(__file__).parent / "fixtures" / "llama_logits" / "tiny-qwen2.gguf"


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    doctor.add_parser(parser.add_subparsers())
    args = parser.parse_args(["doctor", *arguments])
    return args.run(args)


def finding(topic: str, **options) -> Finding:
    return next(f for f in doctor.examine(Path.cwd(), **options) if f.topic == topic)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def model() -> Path:
    paths.models_dir().mkdir(parents=True)
    return Path(shutil.copy(TINY, paths.models_dir() / "tiny.gguf"))


def test_with_a_model_the_agent_can_run(model, capsys):
    assert run() == 0
    output = capsys.readouterr().out
    assert output.endswith("The agent can run.\n")
    assert str(model) in output


def test_without_a_model_it_cannot_and_the_next_step_is_told(capsys):
    assert run() == 1
    output = capsys.readouterr().out
    assert "NO  model" in output
    assert "ds4-agent models pull" in output


def test_json_is_one_object_with_every_finding(model, capsys):
    assert run("--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["can_run"] is True
    topics = {found["topic"] for found in report["findings"]}
    assert {"python", "memory", "device", "model", "sandbox", "sessions", "text"} <= topics


def test_an_unsupported_model_is_told_and_fails(model, capsys):
    damaged = model.read_bytes().replace(b"qwen2", b"qwenX")
    model.write_bytes(damaged)
    assert run("--model", str(model)) == 1
    assert "qwenX" in capsys.readouterr().out


def test_looking_changes_nothing(isolated_home):
    doctor.examine(Path.cwd())
    assert list(isolated_home.iterdir()) == []


def test_broken_settings_do_not_stop_the_other_checks(model):
    paths.config_file().parent.mkdir(parents=True)
    paths.config_file().write_text("nonsense = 1", encoding="utf-8")
    findings = {found.topic: found for found in doctor.examine(Path.cwd())}
    assert not findings["settings"].is_good and findings["settings"].is_needed
    assert "nonsense" in findings["settings"].text
    assert findings["model"].is_good


def test_a_missing_device_is_told_with_its_reason(monkeypatch):
    monkeypatch.setenv("DS4_DEVICE", "metal")

    def refuse(name):
        raise DeviceError(f"no {name} here", "Use --device cpu.")

    monkeypatch.setattr("mlx_kernels.devices.resolve_device", refuse)
    found = finding("device")
    assert (found.is_good, found.text, found.next_step) == (
        False,
        "no metal here",
        "Use --device cpu.",
    )


def test_a_missing_sandbox_is_a_gap_that_does_not_stop_the_agent(model, monkeypatch, capsys):
    from tools.sandbox.probe import SandboxReport

    report = SandboxReport("", "bwrap is missing", "Install bubblewrap.")
    monkeypatch.setattr("tools.sandbox.probe.probe", lambda: report)
    assert run() == 0
    output = capsys.readouterr().out
    assert "--  sandbox      none, so the model cannot run commands: bwrap is missing" in output
    assert "Install bubblewrap." in output


def test_a_weaker_sandbox_is_named_with_the_reason(monkeypatch):
    from tools.sandbox.probe import SandboxReport

    report = SandboxReport("landlock (weaker)", "bwrap is not installed")
    monkeypatch.setattr("tools.sandbox.probe.probe", lambda: report)
    found = finding("sandbox")
    assert found.is_good
    assert found.text.startswith("landlock (weaker), because nothing stronger works: bwrap is not")


def test_missing_programs_are_named_with_their_purpose(monkeypatch):
    monkeypatch.setenv("PATH", "")
    found = finding("rg")
    assert not found.is_good and "fast search" in found.text and "ripgrep" in found.next_step


def test_a_sessions_folder_that_others_can_read_is_told():
    paths.kvcache_dir().mkdir(parents=True)
    paths.kvcache_dir().chmod(0o755)
    assert f"chmod 700 {paths.kvcache_dir()}" in finding("privacy").next_step


def test_a_sessions_folder_that_is_a_file_stops_the_agent(model):
    paths.kvcache_dir().parent.mkdir(parents=True)
    paths.kvcache_dir().write_text("in the way", encoding="utf-8")
    found = finding("sessions")
    assert not found.is_good and found.is_needed


def test_hard_links_in_the_workspace_are_told(folder, tmp_path):
    (tmp_path / "outside").write_text("x", encoding="utf-8")
    os.link(tmp_path / "outside", folder / "inside")
    found = finding("workspace")
    assert not found.is_good and "inside" in found.text


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"COLORTERM": "truecolor"}, "16 million colours"),
        ({"NO_COLOR": "1"}, "no colours"),
        ({"TERM": "xterm-256color", "TMUX": "x"}, "256 colours, inside TMUX"),
        ({"TERM": "vt100"}, "16 colours at most"),
    ],
)
def test_terminal_abilities_are_read_from_the_environment(variables, told, monkeypatch):
    for name in ("TMUX", "SSH_CONNECTION", "STY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert told in doctor_checks.terminal()[0].text


def test_a_small_window_is_told(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "10")
    found = doctor_checks.terminal()[0]
    assert not found.is_good and "40 x 10" in found.text


def test_missing_cpu_kernels_are_told_with_the_next_step(model, monkeypatch):
    found = finding("cpu kernels")
    assert found.is_good == native.is_available()
    assert not found.is_good or "threads" in found.text
    monkeypatch.setattr(native_library, "load_library", lambda: None)  # an install without them
    found = finding("cpu kernels")
    assert not found.is_good and not found.is_needed
    assert "4 bytes a weight" in found.text and "C compiler" in found.next_step
