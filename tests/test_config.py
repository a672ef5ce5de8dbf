"""Settings: order of the sources, what each error tells, what a project may not do."""

from pathlib import Path

import pytest

from ds4agent import config, paths
from ds4agent.config import Config, load_config
from ds4agent.errors import ConfigError, explain
from ds4agent.permissions.trust import TrustFile


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def write_user(text: str) -> Path:
    path = paths.config_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_project(folder: Path, text: str) -> Path:
    path = folder / ".ds4" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_without_files_every_setting_has_its_default(folder):
    loaded = load_config(folder)
    assert loaded == Config()
    assert loaded.origin("ctx") == "default"


def test_later_sources_win_and_each_value_knows_its_origin(folder, monkeypatch):
    user = write_user("temperature = 0.1\ntop_k = 10\nmax_tokens = 900\nseed = 1\n")
    project = write_project(folder, "\ntop_k = 20\nmax_tokens = 800\nseed = 2\n")
    monkeypatch.setenv("DS4_MAX_TOKENS", "700")
    monkeypatch.setenv("DS4_SEED", "3")
    loaded = load_config(folder, trust_project=True).with_values(
        {"seed": 4, "ctx": None}, "command line"
    )
    values = (loaded.temperature, loaded.top_k, loaded.max_tokens, loaded.seed, loaded.ctx)
    assert values == (0.1, 20, 700, 4, 0)
    assert loaded.origin("temperature") == f"{user}:1"
    assert loaded.origin("top_k") == f"{project}:2"
    assert loaded.origin("max_tokens") == "environment variable DS4_MAX_TOKENS"
    assert loaded.origin("seed") == "command line"


def test_unknown_key_names_file_line_and_the_nearest_setting(folder):
    path = write_user("# mine\n\ntemprature = 0.5\n")
    with pytest.raises(ConfigError) as caught:
        load_config(folder)
    assert f"{path}:3" in str(caught.value)
    assert "'temperature'" in caught.value.hint


def test_an_unknown_table_is_an_unknown_setting(folder):
    write_user('[sandbox]\nmode = "off"\n')
    with pytest.raises(ConfigError, match=":1: 'sandbox' is not a setting"):
        load_config(folder)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('ctx = "many"', "'many', expected a whole number"),
        ("ctx = true", "True, expected a whole number"),
        ("ctx = 1.5", "1.5, expected a whole number"),
        ("ctx = -1", "-1, expected at least 0"),
        ("top_p = 1.5", "1.5, expected between 0 and 1"),
        ("top_p = nan", "nan, expected between 0 and 1"),
        ('thinking = "yes"', "'yes', expected true or false"),
        ("model = 3", "3, expected text"),
        ('approval = "full"', "'full', expected one of plan, ask, auto"),
    ],
)
def test_bad_values_are_told_with_what_was_expected(folder, line, told):
    write_user(line)
    with pytest.raises(ConfigError) as caught:
        load_config(folder)
    assert told in str(caught.value)


def test_a_whole_number_is_fine_where_a_number_is_wanted(folder):
    write_user("temperature = 1")
    assert load_config(folder).temperature == 1.0


@pytest.mark.parametrize("content", [b"ctx = = 3\n", b"\xff\xfe", b"ctx = 1\nctx = 2\n"])
def test_a_broken_file_is_one_line_with_its_name(folder, content):
    path = write_user("")
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(folder)
    assert str(path) in explain(caught.value)
    assert "\n" not in explain(caught.value)


@pytest.mark.parametrize(("text", "value"), [("1", True), ("Off", False), ("true", True)])
def test_booleans_of_the_environment_take_the_usual_words(folder, monkeypatch, text, value):
    monkeypatch.setenv("DS4_THINKING", text)
    assert load_config(folder).thinking is value


def test_a_bad_environment_variable_is_named(folder, monkeypatch):
    monkeypatch.setenv("DS4_CTX", "8k")
    with pytest.raises(ConfigError, match="DS4_CTX.*'8k', expected a whole number"):
        load_config(folder)


def test_an_empty_environment_variable_is_not_set(folder, monkeypatch):
    monkeypatch.setenv("DS4_CTX", "")
    assert load_config(folder).ctx == 0


@pytest.mark.parametrize(
    "line",
    [
        'model = "evil.gguf"',
        'device = "cpu"',
        "ctx = 100",
        'approval = "auto"',
        "max_rounds = 51",
        "max_tokens = 100000",
        'sandbox = "off"',
    ],
)
def test_a_project_cannot_widen_or_touch_what_is_the_persons(folder, line):
    path = write_project(folder, line)
    with pytest.raises(ConfigError, match=str(path)):
        load_config(folder, trust_project=True)


def test_a_project_can_make_the_agent_more_careful(folder):
    write_project(folder, 'approval = "plan"\nmax_rounds = 5\ntemperature = 0.3\n')
    loaded = load_config(folder, trust_project=True)
    assert (loaded.approval, loaded.max_rounds, loaded.temperature) == ("plan", 5, 0.3)


def test_a_project_is_measured_against_the_users_own_setting(folder):
    write_user('approval = "plan"')
    write_project(folder, 'approval = "ask"')
    with pytest.raises(ConfigError, match="now 'plan', found 'ask'"):
        load_config(folder, trust_project=True)


def test_an_untrusted_project_file_is_not_read(folder):
    write_project(folder, "not even toml")
    assert load_config(folder, trust_project=False) == Config()


def test_a_projects_file_counts_only_where_the_person_trusts_the_folder(folder):
    write_project(folder, "temperature = 0.3")
    assert load_config(folder).temperature == 0.0
    trust = TrustFile(folder)
    trust.remember(True)
    assert load_config(folder).temperature == 0.3
    trust.remember(False)
    assert load_config(folder).temperature == 0.0


def test_flags_are_checked_like_every_other_source():
    with pytest.raises(ConfigError, match="command line: top_p is 2.0"):
        Config().with_values({"top_p": 2.0}, "command line")


def test_show_with_origin_names_every_setting_and_can_be_read_back(folder, monkeypatch):
    monkeypatch.setenv("DS4_MODEL", 'with "quotes" and \\')
    loaded = load_config(folder)
    text = config.show(loaded, with_origin=True)
    assert all(setting.name in text for setting in config.settings())
    assert "environment variable DS4_MODEL" in text
    monkeypatch.delenv("DS4_MODEL")
    write_user(config.show(loaded))
    assert load_config(folder) == loaded


def test_saved_conversations_lie_where_the_person_says(isolated_home, tmp_path, monkeypatch):
    assert load_config(tmp_path).kvcache_folder == isolated_home / ".ds4" / "kvcache"
    monkeypatch.setenv("DS4_HOME", str(tmp_path / "all"))
    assert load_config(tmp_path).kvcache_folder == tmp_path / "all" / "kvcache"
    monkeypatch.setenv("DS4_KVCACHE", "~/saved")
    assert load_config(tmp_path).kvcache_folder == isolated_home / "saved"


def test_a_project_does_not_say_where_conversations_are_saved(isolated_home, tmp_path):
    project = tmp_path / ".ds4" / "config.toml"
    project.parent.mkdir()
    project.write_text('kvcache = "here"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="a project may not set kvcache"):
        load_config(tmp_path, trust_project=True)
