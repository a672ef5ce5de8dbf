"""`ds4-agent sessions ...` on a folder of saved conversations."""

import json
from pathlib import Path

import pytest

from ds4agent import paths
from ds4agent.cli import main
from ds4agent.sessions_upkeep_cli import size
from sessions.store import SessionStore
from tests.sessions.states import save


@pytest.fixture
def store(isolated_home: Path) -> SessionStore:
    return SessionStore(paths.kvcache_dir())


def sessions(*arguments: str) -> int:
    return main(["sessions", *arguments])


def lines(capsys) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_a_list_shows_names_and_marks(store, capsys) -> None:
    saved, other = save(store), save(store, title="Other", created_at=7)
    assert sessions("rename", saved.id[:8], "The", "build") == 0
    assert sessions("pin", saved.id[:8]) == 0
    assert sessions("strip", other.id[:8], "--yes") == 0
    capsys.readouterr()
    with store.open_lock(saved.id):
        assert sessions("list") == 0
        rows = {row[:8]: row for row in lines(capsys)}
        assert " po  The build" in rows[saved.id[:8]] and " s   Other" in rows[other.id[:8]]
        assert sessions("show", saved.id) == 0
        out = capsys.readouterr().out
        assert "pinned, open in process" in out and "title    Fix the build" in out
    assert sessions("unpin", saved.id[:8]) == 0
    capsys.readouterr()
    assert sessions("list", "--json") == 0
    facts = {row["id"]: row for row in map(json.loads, lines(capsys))}
    assert facts[saved.id]["title"] == "The build" and not facts[saved.id]["is_pinned"]
    assert facts[other.id]["is_stripped"]


def test_a_fork_is_listed_under_its_name(store, capsys) -> None:
    saved = save(store)
    assert sessions("fork", saved.id[:8], "Other", "way") == 0
    assert "'Other way': 3 tokens" in capsys.readouterr().out
    assert {record.label for record in store.list()} == {"Fix the build", "Other way"}


def test_show_as_json_has_the_text(store, capsys) -> None:
    saved = save(store)
    assert sessions("show", saved.id, "--json") == 0
    (row,) = map(json.loads, lines(capsys))
    assert row["id"] == saved.id and "Grüße" in row["text"]


def test_a_search_prints_what_it_found_and_where(store, capsys) -> None:
    saved = save(store)
    assert sessions("search", "grüße") == 0
    row, snippet = lines(capsys)
    assert row.startswith(saved.id[:8]) and "Grüße" in snippet
    assert sessions("search", "nowhere") == 1
    assert "no saved conversation" in capsys.readouterr().out


def test_verify_names_what_is_damaged(store, capsys) -> None:
    good, bad = save(store), save(store, title="bad")
    assert sessions("verify") == 0
    capsys.readouterr()
    data = bytearray(bad.path.read_bytes())
    data[-60] ^= 1
    bad.path.write_bytes(data)
    assert sessions("verify") == 1
    rows = lines(capsys)
    assert rows[-1] == "1 sound, 1 damaged"
    assert any(row.startswith(bad.id[:8]) and "DAMAGED: checksum" in row for row in rows)
    assert sessions("verify", good.id[:8], "--json") == 0
    (row,) = map(json.loads, lines(capsys))
    assert row["problem"] == "" and row["has_checksum"]


def test_gc_asks_and_then_keeps_the_texts(store, capsys) -> None:
    saved = save(store)
    assert sessions("gc", "--budget", "1G") == 0
    assert "nothing has to go" in capsys.readouterr().out
    assert sessions("gc", "--budget", "0", "--dry-run") == 0
    assert saved.id[:8] in capsys.readouterr().out
    assert sessions("gc", "--budget", "0") == 2  # nobody can be asked
    assert not store.find(saved.id).is_stripped
    assert sessions("gc", "--budget", "0", "--yes") == 0
    assert store.find(saved.id).is_stripped
    pinned = save(store, title="pinned")
    sessions("pin", pinned.id)
    assert sessions("gc", "--budget", "0", "--yes") == 1
    assert "kept: pinned" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("0", 0), ("500M", 500 << 20), ("1.5 GiB", 3 << 29), ("2tb", 2 << 40)]
)
def test_sizes_are_read_as_people_write_them(text, n_bytes) -> None:
    assert size(text) == n_bytes


@pytest.mark.parametrize("text", ["", "-1", "many", "5X", "1e9"])
def test_what_is_no_size_is_refused(text, capsys) -> None:
    assert sessions("gc", f"--budget={text}") == 2
    assert "is not a size" in capsys.readouterr().err


def test_a_session_that_is_open_is_not_stripped(store, capsys) -> None:
    saved = save(store)
    with store.open_lock(saved.id):
        assert sessions("strip", saved.id, "--yes") == 1
    assert "is open in process" in capsys.readouterr().err


def test_export_and_import_move_a_session(store, capsys, tmp_path, monkeypatch) -> None:
    saved, file = save(store), tmp_path / "s.ds4session"
    assert sessions("export", saved.id[:8], "-o", str(file)) == 0
    assert "3 tokens of 'Fix the build'" in capsys.readouterr().out
    assert sessions("import", str(file)) == 1
    assert "is here already" in capsys.readouterr().err
    assert sessions("delete", saved.id, "--yes") == 0
    monkeypatch.chdir(tmp_path)
    assert sessions("import", str(file), "--here") == 0
    assert f"--resume {saved.id[:8]}" in capsys.readouterr().out
    assert store.find(saved.id).cwd == str(tmp_path)


def test_a_passphrase_comes_from_the_environment_or_a_terminal(
    store, capsys, tmp_path, monkeypatch
) -> None:
    saved, file = save(store), tmp_path / "s"
    assert sessions("export", saved.id, "-o", str(file), "--passphrase") == 2
    assert "needs a terminal" in capsys.readouterr().err and not file.exists()
    monkeypatch.setenv("DS4_PASSPHRASE", "geheim")
    assert sessions("export", saved.id, "-o", str(file), "--passphrase") == 0
    sessions("delete", saved.id, "--yes")
    monkeypatch.setenv("DS4_PASSPHRASE", "other")
    assert sessions("import", str(file)) == 1
    assert "passphrase is wrong" in capsys.readouterr().err
    monkeypatch.setenv("DS4_PASSPHRASE", "geheim")
    assert sessions("import", str(file)) == 0
    assert store.find(saved.id).title == "Fix the build"


def test_the_folder_of_the_settings_is_looked_at(store, tmp_path, monkeypatch, capsys) -> None:
    save(store)
    saved = save(SessionStore(tmp_path / "elsewhere"), title="Elsewhere")
    monkeypatch.setenv("DS4_KVCACHE", str(tmp_path / "elsewhere"))
    assert sessions("list") == 0
    (row,) = lines(capsys)
    assert row.startswith(saved.id[:8])
