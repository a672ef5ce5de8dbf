"""Imports point down, heavy libraries stay in their rooms, the wheel holds five packages."""

import ast
import graphlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("ds4agent", "sessions", "tools", "engine", "mlx_kernels")
ALLOWED = {
    "ds4agent": {"ds4agent", "sessions", "tools", "engine", "mlx_kernels"},
    "sessions": {"sessions", "engine"},
    "tools": {"tools"},
    "engine": {"engine", "mlx_kernels"},
    "mlx_kernels": {"mlx_kernels"},
}
SCREEN_LIBRARIES = {"textual", "rich", "prompt_toolkit"}
MAX_LINES = 500


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Dotted names of everything a module imports, at any depth of its code."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_down(package: str) -> None:
    for path in modules(package):
        ours = {name.split(".")[0] for name in imports(path)} & set(PACKAGES)
        assert ours <= ALLOWED[package], f"{path.relative_to(ROOT)} imports {ours}"


@pytest.mark.parametrize("package", PACKAGES)
def test_libraries_stay_in_their_rooms(package: str) -> None:
    for path in modules(package):
        used = {name.split(".")[0] for name in imports(path)}
        if package != "ds4agent":
            assert not used & SCREEN_LIBRARIES, path
        if package not in ("engine", "mlx_kernels"):
            assert "mlx" not in used, path


def test_modules_import_each_other_without_circles() -> None:
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for package in PACKAGES
        for path in modules(package)
    }
    graph = {
        name: {found for found in imports(path) if found in names and found != name}
        for name, path in names.items()
    }
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, naming the circle


def test_nothing_but_the_entry_imports_the_screen() -> None:
    outside = [path for path in modules("ds4agent") if "tui" not in path.parts]
    users = {
        path.name for path in outside if any(n.startswith("ds4agent.tui") for n in imports(path))
    }
    assert users <= {"cli.py", "screen_child.py"}  # the latter is what ds4-bench tui watches


def test_no_widget_knows_the_engine() -> None:
    for path in (ROOT / "ds4agent" / "tui").rglob("*.py"):
        below = {name.split(".")[0] for name in imports(path)} & {"engine", "mlx_kernels"}
        assert not below, f"{path.relative_to(ROOT)} imports {below}"


def test_files_are_small_and_documented() -> None:
    for package in PACKAGES:
        for path in modules(package):
            text = path.read_text(encoding="utf-8")
            assert text.count("\n") <= MAX_LINES, f"{path.relative_to(ROOT)} is too long"
            assert ast.get_docstring(ast.parse(text)), f"{path.relative_to(ROOT)} has no docstring"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from ds4agent.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'mlx', 'numpy', 'textual', 'rich', 'tokenizers', 'importlib.metadata', "
        "'ds4agent.events'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_first_paint_imports_no_more_than_it_needs() -> None:
    code = (
        "import sys; import ds4agent.cli, ds4agent.late_worker, ds4agent.tui.app\n"
        "later = {'mlx', 'numpy', 'markdown_it', 'pygments', 'prompt_toolkit', 'sqlite3', "
        "'engine', 'sessions', 'tools', 'ds4agent.agent.worker', 'ds4agent.headless', "
        "'ds4agent.tui.external_editor', 'ds4agent.tui.own_shell', "
        "'ds4agent.tui.widgets.session_picker', 'ds4agent.tui.widgets.trust_dialog', "
        "'ds4agent.tui.widgets.help_screen', 'ds4agent.tui.widgets.settings_screen', "
        "'ds4agent.tui.widgets.permission_screen'} & set(sys.modules)\n"
        "sys.exit(f'imported {later}' if later else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_wheel_holds_exactly_the_five_packages(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == set(PACKAGES)
    assert "ds4agent/tui/app.tcss" in names
    assert any(name.startswith("ds4agent/agent/prompts/") for name in names)
    bodies = (ROOT / "mlx_kernels" / "gpu" / "bodies").iterdir()
    assert {f"mlx_kernels/gpu/bodies/{path.name}" for path in bodies} <= set(names)
