"""Options, subcommands, and what the program says when something is wrong."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ds4agent import paths
from ds4agent.cli import main
from ds4agent.permissions.trust import TrustFile
from tests.fakes.scripted_model import scripted_engine

ROOT = Path(__file__).parent.parent


def run(*arguments: str, replies: tuple[str, ...] = ("Hi.",)) -> int:
    return main(list(arguments), open_engine=lambda progress, cancel: scripted_engine(replies))


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(option: str) -> None:
    code = (
        "import sys; from ds4agent.cli import main\n"
        f"code = main([{option!r}])\n"
        "heavy = {'mlx', 'numpy', 'textual', 'rich', 'tokenizers', 'engine'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "ds4-agent" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("--temp", "hot"),
        ("--temp", "-1"),
        ("--temp", "nan"),
        ("--top-p", "1.5"),
        ("--ctx", "0"),
        ("--ctx", "many"),
        ("-n", "-5"),
        ("--seed", "x"),
        ("--device", "abacus"),
        ("--approval", "never"),
        ("--think", "--nothink"),
        ("--continue", "--resume", "abc"),
        ("--no-save", "--continue"),
        ("--output-format", "xml"),
        ("--chdir", "/does/not/exist"),
        ("--resume",),
        ("--resume", ""),
        ("--unknown",),
        ("second prompt",),
        ("sessions",),
        ("config", "frobnicate"),
    ],
)
def test_bad_options_are_one_line_and_exit_2(arguments, capsys) -> None:
    prompt = () if arguments[0] in ("sessions", "config") else ("-p", "hi")
    assert run(*prompt[:0], *arguments, *prompt) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ds4-agent") and err.count("\n") == 1


def test_bad_setting_in_the_environment_is_one_line_and_exit_2(capsys, monkeypatch) -> None:
    monkeypatch.setenv("DS4_TEMPERATURE", "hot")
    assert run("-p", "hi") == 2
    assert "DS4_TEMPERATURE" in capsys.readouterr().err


def test_model_that_does_not_exist_is_told_before_anything_is_loaded(capsys) -> None:
    code = main(["-p", "hi", "-m", "/no/such/model.gguf"])
    assert code != 0
    err = capsys.readouterr().err
    assert "/no/such/model.gguf" in err and "Traceback" not in err


def test_unexpected_error_is_one_line_with_the_log_and_a_traceback_there(
    capsys, monkeypatch
) -> None:
    def broken(cwd, **_):
        raise KeyError("a bug")

    monkeypatch.setattr("ds4agent.run_settings.load_config", broken)
    assert run("-p", "hi") == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and str(paths.log_file()) in err
    assert "Traceback" in paths.log_file().read_text(encoding="utf-8")


def test_settings_reach_the_agent(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("DS4_MAX_TOKENS", "7")
    assert run("-p", "hi", "--no-save", replies=("abcdefghij",)) == 1
    assert capsys.readouterr().out == "abcdefg\n"
    assert run("-p", "hi", "--no-save", "-n", "4", replies=("abcdefghij",)) == 1
    assert capsys.readouterr().out == "abcd\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder inside a repository that brings instructions, settings and a command."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "AGENTS.md").write_text("Use tabs.", encoding="utf-8")
    folder = tmp_path / ".ds4" / "commands"
    folder.mkdir(parents=True)
    (folder / "fix.md").write_text("Fix it.", encoding="utf-8")
    (tmp_path / ".ds4" / "config.toml").write_text("max_tokens = 3\n", encoding="utf-8")
    inner = tmp_path / "inner"
    inner.mkdir()
    return inner


def run_in(project: Path, capsys, *options: str) -> tuple[dict, str]:
    run("-p", "hi", "--no-save", "--chdir", str(project), "--output-format", "json", *options)
    told = capsys.readouterr()
    return json.loads(told.out), told.err


def test_what_a_project_brings_is_used_with_trust_alone(project, capsys) -> None:
    untrusted, told = run_in(project, capsys)
    assert untrusted["outcome"] == "done"
    line = ".ds4/config.toml, AGENTS.md, .ds4/commands/fix.md of this folder is not used"
    assert line in told and "--trust" in told
    assert line in untrusted["warnings"][0]

    trusted, told = run_in(project, capsys, "--trust")
    assert trusted["outcome"] == "limit"  # three tokens
    assert "not used" not in told
    n_more = trusted["usage"]["context_tokens"] - untrusted["usage"]["context_tokens"]
    assert n_more > len("Use tabs.")
    assert not paths.trust_file().exists()  # a flag is for one run

    TrustFile(project.parent).remember(True)
    assert run_in(project, capsys)[0]["usage"] == trusted["usage"]
    TrustFile(project.parent).remember(False)
    assert run_in(project, capsys)[0]["usage"] == untrusted["usage"]


def test_a_folder_that_brings_nothing_asks_for_no_trust(tmp_path, capsys) -> None:
    result, told = run_in(tmp_path, capsys)
    assert result["outcome"] == "done" and "trust" not in told


def test_a_trusted_project_still_cannot_widen_rights(project, capsys) -> None:
    (project.parent / ".ds4" / "config.toml").write_text('approval = "auto"\n', encoding="utf-8")
    assert run("-p", "hi", "--no-save", "--chdir", str(project), "--trust") == 2
    assert "a project may only narrow approval" in capsys.readouterr().err


def test_sessions_list_show_and_delete(capsys) -> None:
    assert run("sessions", "list") == 0
    assert "no saved conversations" in capsys.readouterr().out
    run("-p", "remember me", "--output-format", "json")
    identifier = json.loads(capsys.readouterr().out)["session_id"]

    assert run("sessions", "list") == 0
    out = capsys.readouterr().out
    assert identifier[:8] in out and "remember me" in out
    assert run("sessions", "list", "--json") == 0
    assert json.loads(capsys.readouterr().out)["id"] == identifier
    assert run("sessions", "show", identifier[:8]) == 0
    out = capsys.readouterr().out
    assert "remember me" in out and "assistant\nHi." in out

    assert run("sessions", "delete", identifier[:8]) == 2  # nobody can be asked
    assert run("sessions", "delete", identifier[:8], "--yes") == 0
    capsys.readouterr()
    assert run("sessions", "show", identifier[:8]) == 1
    assert "no saved session" in capsys.readouterr().err


def test_sessions_delete_removes_a_damaged_one(capsys) -> None:
    run("-p", "remember me", "--output-format", "json")
    identifier = json.loads(capsys.readouterr().out)["session_id"]
    path = paths.kvcache_dir() / f"{identifier}.kv"
    path.write_bytes(path.read_bytes()[:60])
    assert run("sessions", "show", identifier[:8]) == 1
    assert "cannot be read" in capsys.readouterr().err
    assert run("sessions", "delete", identifier[:8], "--yes") == 0
    assert not path.exists()


def test_config_show_says_where_values_come_from(capsys, monkeypatch) -> None:
    monkeypatch.setenv("DS4_CTX", "4096")
    assert run("config", "show", "--origin") == 0
    out = capsys.readouterr().out
    assert "ctx = 4096" in out and "DS4_CTX" in out


def test_names_of_folders_and_files_never_steer_the_terminal(tmp_path, monkeypatch, capsys) -> None:
    for n, name in enumerate([b"\x1b]0;title\x07a", b"\xff\xfeb"]):
        folder = tmp_path / os.fsdecode(name)
        folder.mkdir()
        monkeypatch.chdir(folder)
        assert run("-p", f"hi {n}") == 0
    capsys.readouterr()
    assert run("sessions", "list") == 0
    identifiers = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    for arguments in (["list"], *(["show", identifier] for identifier in identifiers)):
        assert run("sessions", *arguments) == 0
        out, err = capsys.readouterr()
        assert out and "\x1b" not in out + err and "\x07" not in out + err
    assert run("-p", "hi", "--chdir", "/no\x1b[31m") == 2
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("config", "show"), ("--help",)])
def test_reader_that_is_gone_is_no_noise(arguments) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "ds4agent", *arguments]
    try:
        done = subprocess.run(
            command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(("answer", "is_deleted"), [("", False), ("n\n", False), ("y\n", True)])
def test_sessions_delete_asks_a_person(answer, is_deleted, capsys, monkeypatch) -> None:
    run("-p", "remember me", "--output-format", "json")
    identifier = json.loads(capsys.readouterr().out)["session_id"]
    person = io.StringIO(answer)
    person.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", person)
    assert run("sessions", "delete", identifier[:8]) == 0
    assert ("nothing was deleted" in capsys.readouterr().out) is not is_deleted
    assert run("sessions", "show", identifier) == (1 if is_deleted else 0)
