"""The checks of ``doctor``: each looks at one thing and returns its findings."""

import importlib.metadata
import locale
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ds4agent import models, paths
from ds4agent.config import Config, is_trusted, load_config
from ds4agent.models import gigabytes

_PACKAGES = ("ds4-agent", "numpy", "tokenizers", "textual", "rich", "platformdirs", "mlx")
_DEVICES = ("metal", "cuda", "cpu", "mlx-cpu")
_LEAST_PYTHON = (3, 11)
_LEAST_CELLS = (60, 15)  # columns and rows below which the screen is cramped
_VERSION_TIMEOUT_S = 5.0
_PROGRAMS = {  # what each is for
    "rg": ("fast search", "Install ripgrep; a slower search is used until then."),
    "git": ("the model's view of changes", "Install git."),
    "tmux": ("nothing at run time; the end-to-end tests need it", ""),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. ``is_needed`` says that the agent cannot run without it."""

    topic: str
    is_good: bool
    text: str
    next_step: str = ""
    is_needed: bool = False


def versions() -> list[Finding]:
    """Look at Python and the packages."""
    python_is_good = sys.version_info[:2] >= _LEAST_PYTHON
    least = ".".join(map(str, _LEAST_PYTHON))
    python = f"{platform.python_version()} ({sys.executable})"
    installed = []
    for name in _PACKAGES:
        try:
            installed.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            installed.append(f"{name} (not installed)")
    return [
        Finding("python", python_is_good, python, f"Use Python {least} or newer.", True),
        Finding("packages", True, ", ".join(installed)),
    ]


def machine() -> list[Finding]:
    """Look at the system, memory and disk."""
    from engine.memory import available_bytes

    total, free = models.machine_memory_bytes(), available_bytes()
    free_text = f", {gigabytes(free)} available" if free is not None else ""
    disk = shutil.disk_usage(_existing(paths.models_dir()))
    is_roomy = disk.free > 2 << 30
    return [
        Finding("system", True, f"{platform.platform()}, {os.cpu_count()} processors"),
        Finding("memory", True, f"{gigabytes(total)}{free_text}"),
        Finding(
            "disk",
            is_roomy,
            f"{gigabytes(disk.free)} free for models and conversations",
            "Free some space, or point DS4_HOME to a larger disk.",
        ),
    ]


def settings(cwd: Path) -> tuple[Config, list[Finding]]:
    """Read the settings and say which files they come from."""
    config = load_config(cwd)
    project_file = paths.project_config_file(cwd)
    files = [paths.config_file(), project_file]
    found = [str(path) for path in files if path is not None and path.is_file()]
    if project_file is not None and not is_trusted(cwd):
        found[-1] += " (not used: the folder is not trusted)"
    text = ", ".join(found) or f"defaults ({paths.config_file()} is not there)"
    return config, [Finding("settings", True, text, "", True)]


def devices(wanted: str) -> list[Finding]:
    """Look at what can compute, and whether the wanted device is among it."""
    from mlx_kernels.devices import resolve_device
    from mlx_kernels.errors import DeviceError

    findings = []
    for device in _DEVICES:
        try:
            resolve_device(device)
            findings.append(Finding(f"  {device}", True, "available"))
        except DeviceError as error:
            findings.append(Finding(f"  {device}", False, str(error)))
    try:
        chosen = Finding("device", True, f"{resolve_device(wanted)} is used", "", True)
    except DeviceError as error:
        chosen = Finding("device", False, str(error), error.hint, True)
    return [chosen, *findings, _cpu_kernels()]


def _cpu_kernels() -> Finding:
    """Say whether the compiled kernels of the device ``cpu`` are installed."""
    from mlx_kernels.cpu import native

    if native.is_available():
        text = f"compiled ({native.path_name()}, {native.default_threads()} threads)"
        return Finding("cpu kernels", True, text)
    text = "not compiled: a model takes 4 bytes a weight and writes several times slower"
    return Finding("cpu kernels", False, text, "Install a C compiler and ds4-agent again.")


def model(name: str | None, config: Config) -> list[Finding]:
    """Look at the model that would be used, and name the others."""
    from ds4agent.model_facts import describe

    path = models.find_model(name, config)
    lines, is_usable = describe(path, config.device)
    facts = {line.split(":", 1)[0]: line.split(":", 1)[1].strip() for line in lines}
    summary = f"{path} ({facts['architecture']}, {facts['quantisation']}, {facts['size']})"
    why_not = facts["usable here"].removeprefix("no: ")
    others = [model for model in models.found_models() if model.path != path]
    text = summary if is_usable else f"{summary}: {why_not}"
    choose = "Choose another with --model; see `ds4-agent models list`."
    findings = [Finding("model", is_usable, text, choose, True)]
    if others:
        listed = ", ".join(f"{model.path.name} ({gigabytes(model.n_bytes)})" for model in others)
        findings.append(Finding("other models", True, listed))
    return findings


def sandbox() -> list[Finding]:
    """Ask whether commands can be confined here."""
    from tools.sandbox.probe import probe

    report = probe()
    if report.name:
        why = f", because nothing stronger works: {report.reason}" if report.reason else ""
        return [Finding("sandbox", True, f"{report.name}{why}")]
    text = f"none, so the model cannot run commands: {report.reason}"
    return [Finding("sandbox", False, text, report.hint)]


def workspace(cwd: Path) -> list[Finding]:
    """Look for files that other names outside the workspace may share."""
    from tools.sandbox.scan import shared_files

    linked = shared_files(cwd)
    if not linked:
        return [Finding("workspace", True, str(cwd))]
    shown = ", ".join(str(path.relative_to(cwd)) for path in linked[:3])
    more = ", ..." if len(linked) > 3 else ""
    return [
        Finding(
            "workspace",
            False,
            f"{len(linked)} files of {cwd} have a second name (hard link): {shown}{more}",
            "A command may change them, and so what is outside: copy them if that matters.",
        )
    ]


def sessions(folder: Path) -> list[Finding]:
    """Look at the folder of saved conversations, without making it."""
    existing = _existing(folder)
    is_writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    text = str(folder) if existing == folder else f"{folder} (made when first needed)"
    findings = [
        Finding(
            "sessions",
            is_writable,
            text if is_writable else f"{existing} cannot be written to",
            "Correct its owner and mode, or set DS4_HOME or the setting kvcache.",
            True,
        )
    ]
    if existing == folder and folder.stat().st_mode & 0o077:
        text = f"{folder} can be read by other users"
        findings.append(Finding("privacy", False, text, f"Run `chmod 700 {folder}`."))
    findings.append(Finding("log", True, str(paths.log_file())))
    return findings


def terminal() -> list[Finding]:
    """Look at the terminal's size, colours and encoding."""
    columns, rows = shutil.get_terminal_size()
    environment = os.environ
    is_terminal = sys.stdout.isatty()
    encoding = (sys.stdout.encoding or locale.getpreferredencoding(False)).lower()
    is_utf8 = encoding.replace("-", "") == "utf8"
    if "NO_COLOR" in environment:
        colours = "no colours (NO_COLOR is set)"
    elif environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        colours = "16 million colours"
    else:
        colours = "256 colours" if "256" in environment.get("TERM", "") else "16 colours at most"
    inside = [name for name in ("TMUX", "SSH_CONNECTION", "STY") if name in environment]
    kind = environment.get("TERM", "") or "TERM is not set"
    text = f"{kind}, {columns} x {rows}, {colours}" if is_terminal else "output is no terminal"
    is_large = columns >= _LEAST_CELLS[0] and rows >= _LEAST_CELLS[1]
    return [
        Finding(
            "terminal",
            not is_terminal or is_large,
            text + (f", inside {' and '.join(inside)}" if inside else ""),
            f"Make the window at least {_LEAST_CELLS[0]} x {_LEAST_CELLS[1]}.",
        ),
        Finding("text", is_utf8, encoding, "Set LANG to a UTF-8 locale, such as C.UTF-8."),
    ]


def programs() -> list[Finding]:
    """Look for the programs that the tools use."""
    findings = []
    for name, (purpose, next_step) in _PROGRAMS.items():
        path = shutil.which(name)
        if path is None:
            findings.append(Finding(name, False, f"not found; for {purpose}", next_step))
        else:
            findings.append(Finding(name, True, _version(path, name)))
    return findings


def _version(path: str, name: str) -> str:
    option = "-V" if name == "tmux" else "--version"
    try:
        done = subprocess.run(
            [path, option],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not start: {error}"
    lines = done.stdout.splitlines()
    return f"{lines[0] if lines else 'version unknown'} ({path})"


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest parent that is there."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
