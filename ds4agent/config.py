"""Settings: one frozen value per setting, and where it came from.

Later sources win: built-in defaults, the user's file, the project's file, the environment
(``DS4_<SETTING>``), command-line flags. A project's file comes from whoever wrote the repository,
so it may only make the program more careful: each field below says what a project may do with it.
"""

import dataclasses
import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ds4agent import paths
from ds4agent.errors import ConfigError
from ds4agent.permissions.rules import OwnedRule, Rule, Verdict
from ds4agent.permissions.trust import TrustFile
from ds4agent.requests import Mode
from ds4agent.screen_requests import THEMES

# Not FULL: that is given on the command line only, for one run.
_APPROVAL_WIDTH = {mode.value: i for i, mode in enumerate((Mode.PLAN, Mode.ASK, Mode.AUTO))}

# What a project's file may do with a setting.
_NEVER = "never"  # it is about the person's machine, files or rights
_LOWER = "lower"  # only a smaller value than the one in force
_NARROWER = "narrower"  # only a stricter approval mode than the one in force
_ANY = "any"  # it changes the answer, not what the program may do
_ADD = "add"  # more entries of a list that only makes the program more careful


def _setting(
    default: Any,
    help_text: str,
    *,
    project: str = _NEVER,
    choices: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
) -> Any:
    metadata = {
        "help": help_text,
        "project": project,
        "choices": choices,
        "least": least,
        "most": most,
    }
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting. A field's name is its key in TOML and, after ``DS4_``, its variable."""

    model: str = _setting("", "a known name or a GGUF file; empty picks what fits this machine")
    device: str = _setting(
        "auto", "what computes", choices=("auto", "metal", "cuda", "cpu", "mlx-cpu")
    )
    ctx: int = _setting(0, "context length in tokens; 0 chooses by the model", least=0)
    temperature: float = _setting(0.0, "0 always takes the likeliest token", project=_ANY, least=0)
    top_k: int = _setting(0, "sample among the k likeliest tokens; 0: all", project=_ANY, least=0)
    top_p: float = _setting(
        1.0, "sample among the likeliest tokens of this total", project=_ANY, least=0, most=1
    )
    min_p: float = _setting(
        0.05, "drop tokens below this share of the likeliest", project=_ANY, least=0, most=1
    )
    seed: int | None = _setting(None, "repeat the same sampling", project=_ANY, least=0)
    max_tokens: int = _setting(8192, "longest answer of one round, tokens", project=_LOWER, least=1)
    max_rounds: int = _setting(50, "most tool rounds in one turn", project=_LOWER, least=1)
    profile: str = _setting(
        "auto",
        "how a model is led; auto: by its size",
        project=_ANY,
        choices=("auto", "full", "small"),
    )
    auto_compact: bool = _setting(True, "make room when the context is full", project=_ANY)
    kvcache: str = _setting("", "folder of saved conversations; empty: kvcache in ~/.ds4")
    thinking: bool = _setting(False, "let the model think first, if it can", project=_ANY)
    approval: str = _setting(
        Mode.ASK.value,
        "how much happens without asking",
        project=_NARROWER,
        choices=tuple(_APPROVAL_WIDTH),
    )
    allow: tuple[str, ...] = _setting((), "calls that need no question, as rules")
    ask: tuple[str, ...] = _setting((), "calls that always need one, as rules", project=_ADD)
    deny: tuple[str, ...] = _setting((), "calls that are never made, as rules", project=_ADD)
    theme: str = _setting("auto", "colours; auto asks the terminal", choices=THEMES)
    motion: bool = _setting(True, "let scrolling glide; never over ssh")
    mouse: bool = _setting(True, "take the mouse: wheel, clicks, selection that copies")
    notify: str = _setting(
        "auto",
        "tell of the end of a long turn or a question in another window: osc9 is a message of "
        "the desktop; auto takes it where the terminal has it, else the bell",
        choices=("auto", "bell", "osc9", "off"),
    )
    notify_after: float = _setting(20.0, "a turn this long, in seconds, is a long one", least=0)
    history: bool = _setting(True, "keep what was typed for the next run; never with --no-save")
    hooks: tuple[Mapping[str, Any], ...] = _setting((), "commands around calls")
    servers: Mapping[str, Any] = _setting({}, "MCP servers, by name")
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def origin(self, name: str) -> str:
        """Say where the value of a setting came from: a file and line, a variable, a flag."""
        return self.origins.get(name, "default")

    def rules(self) -> tuple[OwnedRule, ...]:
        """Return the rules about calls that the settings hold.

        Raises:
            ConfigError: one of them is no rule.
        """
        owned = []
        for verdict in Verdict:
            origin = self.origin(verdict.value)
            for text in getattr(self, verdict.value):
                try:
                    owned.append(OwnedRule(verdict, Rule.parse(text), origin))
                except ConfigError as error:
                    raise ConfigError(f"{origin}: {error}", error.hint) from error
        return tuple(owned)

    @property
    def kvcache_folder(self) -> Path:
        """The folder of saved conversations."""
        return Path(self.kvcache).expanduser().absolute() if self.kvcache else paths.kvcache_dir()

    def with_values(self, values: Mapping[str, Any], origin: str) -> "Config":
        """Return a copy with some settings replaced; ``None`` leaves a setting as it is.

        Args:
            values: setting name -> value, as the command line parsed them.
            origin: what to show as their source, e.g. ``"command line"``.

        Raises:
            ConfigError: a name is unknown or a value is out of range.
        """
        given = {name: value for name, value in values.items() if value is not None}
        checked = {name: _checked(_known(name, origin), v, origin) for name, v in given.items()}
        return _replaced(self, checked, dict.fromkeys(checked, origin))


def settings() -> tuple[dataclasses.Field, ...]:
    """Return the fields of Config that are settings, in the order they are shown."""
    return tuple(f for f in dataclasses.fields(Config) if f.name != "origins")


def parse_value(name: str, text: str) -> Any:
    """Return the value of a setting that a person typed.

    Raises:
        ConfigError: the name is unknown, or the value has the wrong type or range.
    """
    setting = _known(name, "this")
    return _checked(setting, _parsed(setting, text), "this")


def load_config(cwd: Path, *, trust_project: bool | None = None) -> Config:
    """Read the settings for one folder: defaults, user file, project file, environment.

    Args:
        cwd: the folder the agent works in; its project file is looked for here and above.
        trust_project: whether the project's file counts; None goes by what the person has said of
            this folder, and without a word it does not.

    Raises:
        ConfigError: a file cannot be read, a key is unknown, a value has the wrong type or range,
            or a project's file asks for more than it may.
    """
    config = Config()
    user_file = paths.config_file()
    if user_file.is_file():
        config = _with_file(config, user_file, is_project=False)
    project_file = paths.project_config_file(cwd) if trust_project is not False else None
    if project_file is not None and (trust_project or is_trusted(cwd)):
        config = _with_file(config, project_file, is_project=True)
    return _with_environment(config, os.environ)


def is_trusted(cwd: Path) -> bool:
    """Tell whether the person has said that the project of this folder is trusted.

    Raises:
        ConfigError: the file that keeps it cannot be read.
    """
    return TrustFile(paths.project_root(cwd)).read() is True


def kvcache_folder() -> Path:
    """Return the folder of saved conversations that the settings of this folder name.

    Raises:
        ConfigError: the settings cannot be read.
    """
    return load_config(Path.cwd()).kvcache_folder


def show(config: Config, *, with_origin: bool = False) -> str:
    """Return the settings as TOML, one a line; with ``with_origin`` each says where it is from."""
    lines = []
    for setting in settings():
        value = getattr(config, setting.name)
        text = f"{setting.name} = {_toml(value)}" if value is not None else f"# {setting.name}"
        lines.append(f"{text:32}  # {config.origin(setting.name)}" if with_origin else text)
    return "\n".join(lines) + "\n"


def _with_file(config: Config, path: Path, *, is_project: bool) -> Config:
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"cannot read the settings in {path}: {error}", "Correct the file, or move it away."
        ) from error
    checked: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, value in values.items():
        where = f"{path}:{_line_of(text, name)}"
        setting = _known(name, where)
        checked[name] = _checked(setting, value, where)
        origins[name] = where
        if is_project:
            before = getattr(config, name)
            _check_project_right(setting, before, checked[name], where)
            if setting.metadata["project"] == _ADD:
                checked[name] = (*before, *checked[name])
    return _replaced(config, checked, origins)


def _with_environment(config: Config, environment: Mapping[str, str]) -> Config:
    checked: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for setting in settings():
        variable = f"DS4_{setting.name.upper()}"
        text = environment.get(variable, "")
        if text:
            origins[setting.name] = f"environment variable {variable}"
            checked[setting.name] = _checked(setting, _parsed(setting, text), origins[setting.name])
    return _replaced(config, checked, origins)


def _replaced(config: Config, values: dict[str, Any], origins: dict[str, str]) -> Config:
    merged = MappingProxyType({**config.origins, **origins})
    return dataclasses.replace(config, **values, origins=merged)


def _known(name: str, where: str) -> dataclasses.Field:
    known = {setting.name: setting for setting in settings()}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known settings: {', '.join(known)}."
    raise ConfigError(f"{where}: {name!r} is not a setting", hint)


def _checked(setting: dataclasses.Field, value: Any, where: str) -> Any:
    """Return the value in the setting's own type, or raise what a person can act on."""
    wanted = _kind(setting)
    if wanted is float and type(value) is int:
        value = float(value)
    if wanted is tuple and type(value) is list and all(type(entry) is str for entry in value):
        value = tuple(value)
    if wanted is list and type(value) is list and all(type(entry) is dict for entry in value):
        return tuple(value)
    if type(value) is not wanted:  # not isinstance: True is no number here
        raise ConfigError(
            f"{where}: {setting.name} is {value!r}, expected {_KIND_NAMES[wanted]}",
            f"It sets: {setting.metadata['help']}.",
        )
    choices = setting.metadata["choices"]
    if choices and value not in choices:
        near = difflib.get_close_matches(value, choices, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "Choose one of them."
        raise ConfigError(
            f"{where}: {setting.name} is {value!r}, expected one of {', '.join(choices)}", hint
        )
    least, most = setting.metadata["least"], setting.metadata["most"]
    # Written so that NaN, which compares false with everything, fails as well.
    if (least is not None and not value >= least) or (most is not None and not value <= most):
        limits = f"at least {least}" if most is None else f"between {least} and {most}"
        raise ConfigError(
            f"{where}: {setting.name} is {value!r}, expected {limits}",
            f"It sets: {setting.metadata['help']}.",
        )
    return value


def _check_project_right(setting: dataclasses.Field, now: Any, wanted: Any, where: str) -> None:
    match setting.metadata["project"]:
        case "never":
            problem = f"a project may not set {setting.name}"
        case "lower" if wanted > now:
            problem = f"a project may only lower {setting.name} (now {now}, found {wanted})"
        case "narrower" if _APPROVAL_WIDTH[wanted] > _APPROVAL_WIDTH[now]:
            problem = f"a project may only narrow {setting.name} (now {now!r}, found {wanted!r})"
        case _:
            return
    raise ConfigError(
        f"{where}: {problem}",
        f"Remove the line, or set it in {paths.config_file()} or on the command line.",
    )


_KIND_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "a list of texts",
    list: "tables",
    dict: "a table for each",
}


def _kind(setting: dataclasses.Field) -> type:
    if setting.type == tuple[str, ...]:
        return tuple
    if setting.type == tuple[Mapping[str, Any], ...]:
        return list
    if setting.type == Mapping[str, Any]:
        return dict
    return int if setting.type == int | None else setting.type


def _parsed(setting: dataclasses.Field, text: str) -> Any:
    """Read an environment variable; what cannot be read stays text and fails the type check."""
    kind = _kind(setting)
    if kind in (list, dict):
        return text  # tables are written in a file, and this fails the type check
    if kind is tuple:
        return tuple(line.strip() for line in text.splitlines() if line.strip())
    if kind is bool:
        words = {"1": True, "true": True, "yes": True, "on": True}
        words |= {"0": False, "false": False, "no": False, "off": False}
        return words.get(text.lower(), text)
    try:
        return kind(text)
    except ValueError:
        return text


def _line_of(text: str, name: str) -> int:
    pattern = re.compile(rf"""^\s*\[{{0,2}}\s*["']?{re.escape(name)}["']?\s*[=.\]]""")
    for number, line in enumerate(text.splitlines(), start=1):
        if pattern.match(line):
            return number
    return 1


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        pairs = (f"{_toml(name)} = {_toml(entry)}" for name, entry in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(_toml(entry) for entry in value)}]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value)
