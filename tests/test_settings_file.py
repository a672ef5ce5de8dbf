"""Writing settings into the person's file."""

from pathlib import Path

import pytest

from ds4agent import paths
from ds4agent.config import Config, load_config
from ds4agent.errors import ConfigError
from ds4agent.settings_file import SettingsFile


def test_a_value_is_read_back_with_its_comments_and_tables_left(tmp_path: Path) -> None:
    path = paths.config_file()
    path.parent.mkdir(parents=True)
    path.write_text("# mine\nctx = 1000  # small\n\n[servers.a]\ncommand = ['x']\n", "utf-8")
    file = SettingsFile()
    file.write("theme", "light")
    file.write("ctx", "2000")
    file.write("motion", "no")
    config = load_config(tmp_path)
    assert (config.theme, config.ctx, config.motion) == ("light", 2000, False)
    assert config.servers == {"a": {"command": ["x"]}}
    text = path.read_text("utf-8")
    assert "# mine" in text and "# small" in text


@pytest.mark.parametrize(
    ("name", "typed"), [("theme", "pink"), ("ctx", "many"), ("top_p", "2"), ("nothing", "1")]
)
def test_what_is_wrong_is_not_written(name: str, typed: str) -> None:
    with pytest.raises(ConfigError):
        SettingsFile().write(name, typed)
    assert not paths.config_file().exists()


def test_removing_goes_back_to_the_built_in_value(tmp_path: Path) -> None:
    file = SettingsFile()
    file.write("ctx", "2000")
    config = file.changed(Config(), "ctx")
    assert config.ctx == 2000
    file.remove("ctx")
    assert file.changed(load_config(tmp_path), "ctx").ctx == Config().ctx
    assert load_config(tmp_path).origin("ctx") == "default"


def test_a_variable_still_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS4_THEME", "ansi")
    config = load_config(tmp_path)
    file = SettingsFile()
    file.write("theme", "light")
    assert not file.is_in_force(config, "theme")
    assert file.changed(config, "theme").theme == "ansi"
