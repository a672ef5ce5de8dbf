"""Where files live. No other module knows a folder of this program, and none is made here unasked.

Checkpoints are shared with the C program ds4, so they stay in ``~/.ds4/kvcache`` on every system.
Settings, models and the log follow the system's own conventions. ``DS4_HOME`` overrules all of
this and puts everything below one folder.
"""

import os
from pathlib import Path

import platformdirs

_APP = "ds4-agent"


def override() -> Path | None:
    """Return the folder that ``DS4_HOME`` names, or None when it is not set."""
    value = os.environ.get("DS4_HOME", "")
    return Path(value).expanduser().absolute() if value else None


def ds4_folder() -> Path:
    """Return the folder shared with the C program: ``DS4_HOME``, else ``~/.ds4``."""
    return override() or Path.home() / ".ds4"


def kvcache_dir() -> Path:
    """Return the folder of saved conversations. Whoever writes there creates it with mode 0700."""
    return ds4_folder() / "kvcache"


def undo_dir() -> Path:
    """Return the folder that keeps what files were before the agent changed them."""
    return ds4_folder() / "undo"


def models_dir() -> Path:
    """Return the folder that ``models pull`` writes to.

    It is under data, never under cache: a cleaner must not remove a file of many gigabytes.
    """
    home = override()
    return (
        home / "models" if home else platformdirs.user_data_path(_APP, appauthor=False) / "models"
    )


def config_file() -> Path:
    """Return the user's settings file; an existing ``~/.ds4/config.toml`` is respected."""
    shared = ds4_folder() / "config.toml"
    if override() or shared.is_file():
        return shared
    return platformdirs.user_config_path(_APP, appauthor=False) / "config.toml"


def permissions_file() -> Path:
    """Return the file of the rules that a person has given, beside the settings."""
    return config_file().with_name("permissions.toml")


def trust_file() -> Path:
    """Return the file of the folders that a person trusts, beside the settings."""
    return config_file().with_name("trusted.toml")


def command_folders(cwd: Path) -> tuple[Path, Path]:
    """Return the folders of Markdown commands: the person's, then the project's."""
    return config_file().with_name("commands"), project_root(cwd) / ".ds4" / "commands"


def project_root(cwd: Path) -> Path:
    """Return the top of the repository that ``cwd`` is in, else ``cwd`` itself."""
    folder = cwd.absolute()
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return candidate
    return folder


def log_file() -> Path:
    """Return the file that tracebacks and warnings go to."""
    home = override()
    folder = home / "log" if home else platformdirs.user_log_path(_APP, appauthor=False)
    return folder / "ds4-agent.log"


def input_history_file() -> Path:
    """Return the file of what the person typed, for the key that brings it back."""
    home = override()
    folder = home or platformdirs.user_state_path(_APP, appauthor=False)
    return folder / "history.jsonl"


def project_config_file(cwd: Path) -> Path | None:
    """Return the nearest ``.ds4/config.toml`` at or above ``cwd``, or None.

    The search ends at the top of the repository and below the home folder: what lies above the
    project is not the project's, and ``~/.ds4`` is the user's own.
    """
    home = Path.home()
    for folder in (cwd.absolute(), *cwd.absolute().parents):
        if folder == home:
            return None
        candidate = folder / ".ds4" / "config.toml"
        if candidate.is_file() and candidate != config_file():
            return candidate
        if (folder / ".git").exists():
            return None
    return None


def make_private(folder: Path) -> Path:
    """Create ``folder`` readable by its owner only (0700) and return it.

    An existing folder keeps its mode: it may be shared on purpose.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
