"""The folders: DS4_HOME, the system's conventions, and the project's own file."""

from pathlib import Path

import pytest

from ds4agent import paths


def test_every_path_is_below_ds4_home_when_it_is_set(tmp_path, monkeypatch):
    monkeypatch.setenv("DS4_HOME", str(tmp_path / "all"))
    places = [
        paths.kvcache_dir(),
        paths.models_dir(),
        paths.config_file(),
        paths.log_file(),
    ]
    assert all(place.is_relative_to(tmp_path / "all") for place in places)
    assert len(set(places)) == len(places)


def test_checkpoints_are_shared_with_the_c_program_by_default(isolated_home):
    assert paths.kvcache_dir() == isolated_home / ".ds4" / "kvcache"


def test_models_are_data_and_not_cache(isolated_home):
    assert paths.models_dir().is_relative_to(isolated_home)
    assert "cache" not in str(paths.models_dir()).lower()


def test_asking_for_paths_creates_nothing(isolated_home):
    paths.kvcache_dir(), paths.models_dir(), paths.config_file(), paths.log_file()
    assert list(isolated_home.iterdir()) == []


def test_a_tilde_in_ds4_home_is_expanded(isolated_home, monkeypatch):
    monkeypatch.setenv("DS4_HOME", "~/elsewhere")
    assert paths.models_dir() == isolated_home / "elsewhere" / "models"


def test_an_existing_file_in_the_ds4_folder_is_respected(isolated_home):
    usual = paths.config_file()
    shared = isolated_home / ".ds4" / "config.toml"
    shared.parent.mkdir()
    shared.write_text("", encoding="utf-8")
    assert paths.config_file() == shared != usual


def test_private_folders_are_for_their_owner_only(tmp_path):
    folder = paths.make_private(tmp_path / "a" / "b")
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def project(isolated_home) -> Path:
    folder = isolated_home / "work" / "project"
    (folder / ".ds4").mkdir(parents=True)
    (folder / ".ds4" / "config.toml").write_text("", encoding="utf-8")
    return folder


def test_project_file_is_found_from_a_folder_below(project):
    below = project / "src" / "deep"
    below.mkdir(parents=True)
    assert paths.project_config_file(below) == project / ".ds4" / "config.toml"


def test_project_file_above_the_repository_does_not_count(project):
    inner = project / "vendored"
    (inner / ".git").mkdir(parents=True)
    assert paths.project_config_file(inner) is None


def test_the_users_own_file_is_no_project_file(isolated_home):
    (isolated_home / ".ds4").mkdir()
    (isolated_home / ".ds4" / "config.toml").write_text("", encoding="utf-8")
    assert paths.project_config_file(isolated_home) is None
    assert paths.project_config_file(isolated_home / "work") is None
