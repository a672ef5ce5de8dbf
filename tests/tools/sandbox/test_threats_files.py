"""What a hostile command may try on files: threats 1 to 8, each on the real mechanism."""

import os
from pathlib import Path

import pytest

from tests.tools.sandbox.commands import Bash, git, refused
from tools.sandbox.mechanism import Mechanism
from tools.toolbox import Toolbox

pytestmark = pytest.mark.sandbox


# --- 1, 2: files outside, secrets -----------------------------------------------------------------


def test_01_write_outside_is_refused(
    bash: Bash, root: Path, tmp_path: Path, isolated_home: Path
) -> None:
    places = ["/etc/planted", "/usr/planted", "/planted", "/dev/planted", "/opt/planted"]
    refused(bash, *[f"echo x > {place}" for place in places])
    assert not any(Path(place).exists() for place in places)
    # Below /tmp the command sees its own temporary folder, so only the host tells.
    bash(f"echo x > ../planted; mkdir -p {isolated_home}; echo x > {isolated_home}/planted")
    assert not (tmp_path / "planted").exists()
    assert not (isolated_home / "planted").exists()


def test_01_private_temporary_folder_is_gone_afterwards(bash: Bash) -> None:
    shown = bash("echo x > $TMPDIR/mine && echo x > ~/mine && cat $TMPDIR/mine ~/mine; echo ~")
    assert shown.text.startswith("x\nx\n/tmp/")
    assert not Path("/tmp/mine").exists() and not Path(shown.text.split("\n")[2]).exists()
    assert not bash("cat $TMPDIR/mine").ok


def test_02_secrets_are_not_there(bash: Bash, root: Path, isolated_home: Path) -> None:
    (isolated_home / ".ssh").mkdir()
    (isolated_home / ".ssh/id_test").write_text("SECRET", encoding="utf-8")
    (root / "sub").mkdir()
    for name in (".env", ".env.local", "tls.pem", "sub/id_test", "sub/.env"):
        (root / name).write_text("SECRET", encoding="utf-8")
    result = bash(
        f"cat {isolated_home}/.ssh/id_test ~/.ssh/id_test .env .env.local tls.pem sub/id_test "
        "sub/.env; cp .env copy; ln .env copy2; mv .env moved; cat copy copy2 moved; "
        "grep -rh SECRET . && echo found"
    )
    assert "SECRET" not in result.text and "found" not in result.text
    assert (root / ".env").read_text(encoding="utf-8") == "SECRET"


def test_02_hidden_file_behind_a_link_is_not_readable(bash: Bash, root: Path) -> None:
    (root / "real-secret").write_text("SECRET", encoding="utf-8")
    (root / ".env").symlink_to("real-secret")
    assert "SECRET" not in bash("cat .env real-secret").text


def test_02_shadow_is_not_readable_even_for_root(bash: Bash) -> None:
    if not Path("/etc/shadow").exists():
        pytest.skip("needs /etc/shadow")
    assert not bash("cat /etc/shadow").ok
    assert not bash("cat /etc/ssh/*").ok


def test_02_home_as_workspace_still_hides_secrets(isolated_home: Path, sandbox: None) -> None:
    (isolated_home / ".ssh").mkdir()
    (isolated_home / ".ssh/config").write_text("SECRET", encoding="utf-8")
    (isolated_home / ".netrc").write_text("SECRET", encoding="utf-8")
    (isolated_home / ".bashrc").write_text("mine\n", encoding="utf-8")
    box = Toolbox.from_folder(isolated_home)
    result = box.run("bash", {"command": "cat .ssh/config .netrc; echo bad >> .bashrc; ls -a .ssh"})
    assert "SECRET" not in result.text
    assert (isolated_home / ".bashrc").read_text(encoding="utf-8") == "mine\n"


# --- 3 to 8: protected paths, links ---------------------------------------------------------------


def test_03_git_hook_and_config_cannot_be_planted(
    bash: Bash, repository: Path, mechanism: Mechanism
) -> None:
    config = (repository / ".git/config").read_text(encoding="utf-8")
    refused(
        bash,
        "echo x > .git/hooks/pre-commit",
        "echo x >> .git/config",
        "git config core.fsmonitor 'touch x'",
        "rm -rf .git/hooks",
        "echo x > .git/new",
    )
    if mechanism.key != "landlock":  # no rule of Landlock is about the mode of a file
        refused(bash, "chmod 777 .git/config")
    assert (repository / ".git/config").read_text(encoding="utf-8") == config
    assert not (repository / ".git/hooks/pre-commit").exists()


def test_03_nested_repository_and_submodule_are_protected(
    bash: Bash, repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    git(tmp_path / "other", "init")
    git(tmp_path / "other", "commit", "--allow-empty", "-m", "first")
    git(
        repository, "-c", "protocol.file.allow=always",
        "submodule", "add", str(tmp_path / "other"), "mods/other",
    )  # fmt: skip
    (repository / "deep/nested").mkdir(parents=True)
    git(repository / "deep/nested", "init")
    pointer = (repository / "mods/other/.git").read_text(encoding="utf-8")
    places = (
        "deep/nested/.git/hooks/pre-commit",
        ".git/modules/mods/other/hooks/pre-commit",
        "mods/other/.git",
        ".gitmodules",
    )
    refused(bash, *[f"echo x > {place}" for place in places])
    assert (repository / "mods/other/.git").read_text(encoding="utf-8") == pointer
    assert bash("git -C mods/other log -1 --format=%s").text == "first"


def test_03_worktree_shows_its_repository_read_only(
    repository: Path, tmp_path: Path, sandbox: None
) -> None:
    tree = tmp_path / "tree"
    git(repository, "worktree", "add", str(tree))
    box = Toolbox.from_folder(tree)
    assert box.run("bash", {"command": "git log -1 --format=%s"}).text == "first"
    plant = f"echo x > {repository}/.git/hooks/post-checkout"
    assert box.run("bash", {"command": plant}).exit_code != 0
    assert not (repository / ".git/hooks/post-checkout").exists()
    assert box.run("bash", {"command": f"cat {repository}/a.txt"}).exit_code != 0


def test_03_pointer_to_something_else_is_not_followed(
    root: Path, isolated_home: Path, sandbox: None
) -> None:
    (isolated_home / ".ssh").mkdir()
    (isolated_home / ".ssh/config").write_text("SECRET", encoding="utf-8")
    (root / ".git").write_text(f"gitdir: {isolated_home}/.ssh\n", encoding="utf-8")
    result = Toolbox.from_folder(root).run("bash", {"command": f"cat {isolated_home}/.ssh/config"})
    assert "SECRET" not in result.text


def test_03_pointer_made_by_a_command_shows_no_other_repository(
    bash: Bash, repository: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init")
    (other / ".git/SECRET").write_text("SECRET", encoding="utf-8")
    bash(f"mkdir a b && echo 'gitdir: {other}/.git' > a/.git && ln -s {other}/.git b/.git")
    assert "SECRET" not in bash(f"cat {other}/.git/note a/.git/note b/.git/note").text


@pytest.mark.parametrize("name", [".github", ".github/workflows"])
def test_04_link_in_place_of_a_missing_folder_makes_nothing_outside(
    bash: Bash, root: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "outside").mkdir()
    bash(f"mkdir -p $(dirname {name}); ln -s {tmp_path}/outside {name}")
    seen: list[str] = []
    box = Toolbox.from_folder(root)
    watch = "echo go; sleep 0.2"
    box.run(
        "bash", {"command": watch}, None, lambda _: seen.extend(os.listdir(tmp_path / "outside"))
    )
    assert seen == [] and list((tmp_path / "outside").iterdir()) == []


def test_04_file_in_place_of_a_missing_folder_does_not_stop_commands(
    bash: Bash, root: Path
) -> None:
    (root / ".github").write_text("a file\n", encoding="utf-8")
    assert bash("cat .github").text == "a file"


def test_06_restoring_a_link_never_writes_outside(bash: Bash, root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/.envrc").write_text("precious", encoding="utf-8")
    (root / "sub").mkdir()
    (root / "sub/.envrc").symlink_to("other")
    bash(f"rm sub/.envrc; mv sub old; rm -rf sub; ln -s {tmp_path}/outside sub")
    assert (tmp_path / "outside/.envrc").read_text(encoding="utf-8") == "precious"
    assert os.listdir(tmp_path / "outside") == [".envrc"]
    assert os.readlink(root / "sub/.envrc") == "other"


def test_03_hooks_folder_named_by_the_configuration_is_protected(
    bash: Bash, repository: Path
) -> None:
    (repository / ".husky").mkdir()
    git(repository, "config", "core.hooksPath", ".husky")
    refused(bash, "echo x > .husky/pre-commit")


@pytest.mark.parametrize("bait", ["pyvenv.cfg", ".gitignore", ".nomedia", "CACHEDIR.TAG"])
def test_03_no_bait_file_makes_the_scan_blind(bash: Bash, root: Path, bait: str) -> None:
    (root / "sub").mkdir()
    git(root / "sub", "init")
    (root / "sub/free").mkdir()
    assert bash(f"echo '*' > sub/free/{bait}").ok
    (root / "sub" / bait).write_text("*", encoding="utf-8")
    refused(bash, "echo x > sub/.git/hooks/pre-commit")


def test_03_separate_git_folder_inside_is_protected(bash: Bash, root: Path) -> None:
    (root / "meta").mkdir()
    git(root, "init", "--separate-git-dir=meta/store")
    refused(bash, "echo x > meta/store/hooks/pre-commit")
    refused(bash, "mv meta old")


@pytest.mark.parametrize(
    "path",
    [".ds4/config.toml", ".vscode/tasks.json", ".idea/w.xml", ".github/workflows/ci.yml",
     ".envrc", ".mcp.json", "AGENTS.md", "sub/AGENTS.md", ".gitattributes", ".bashrc"],
)  # fmt: skip
def test_03_existing_protected_path_is_read_only(bash: Bash, root: Path, path: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("old", encoding="utf-8")
    refused(
        bash,
        f"echo x > {path}",
        f"rm -f {path}",
        f"mv {path} x",
        f"truncate -s0 {path}",
    )
    assert (root / path).read_text(encoding="utf-8") == "old"


def test_04_missing_git_cannot_be_made_and_the_host_is_clean(bash: Bash, root: Path) -> None:
    refused(
        bash,
        "mkdir .git",
        "git init",
        "mkdir -p .git/hooks",
        "rmdir .git",
        "mv .git x",
    )
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("name", [".envrc", "AGENTS.md", ".mcp.json", ".gitattributes"])
def test_04_new_protected_file_is_moved_aside(
    bash: Bash, root: Path, name: str, mechanism: Mechanism
) -> None:
    result = bash(f"echo bad > {name}")
    assert not (root / name).exists()
    if mechanism.key == "landlock":
        assert "Permission denied" in result.text  # it could not be made in the first place
        return
    assert (root / f"{name}.refused").exists()
    assert f"renamed to {name}.refused" in result.text


def test_05_rename_of_git_and_of_its_parent_is_refused(bash: Bash, root: Path) -> None:
    nested = root / "sub/deep"
    nested.mkdir(parents=True)
    git(nested, "init")
    refused(
        bash,
        "mv sub/deep/.git sub/deep/old",
        "mv sub/deep sub/old && mkdir -p sub/deep/.git/hooks",
        "mv sub old && mkdir -p sub/deep/.git/hooks && echo x > sub/deep/.git/hooks/pre-commit",
        "rm -rf sub",
    )
    assert (nested / ".git/HEAD").exists()
    assert not (nested / ".git/hooks/pre-commit").exists()
    (root / "sub/free").mkdir()
    assert bash("cd sub/free && mkdir new && mv new newer && echo x > newer/file").ok


def test_06_protected_folder_that_is_a_link_into_the_workspace_is_refused(
    bash: Bash, root: Path
) -> None:
    (root / "store").mkdir()
    (root / ".git").symlink_to("store")
    result = bash("echo x > store/config")
    assert not result.ok and "cannot be protected" in result.text
    assert list((root / "store").iterdir()) == []


def test_06_protected_file_that_is_a_link_protects_its_target(bash: Bash, root: Path) -> None:
    (root / "docs").mkdir()
    (root / "docs/rules.md").write_text("rules\n", encoding="utf-8")
    (root / "AGENTS.md").symlink_to("docs/rules.md")
    refused(bash, "echo x >> docs/rules.md")
    refused(bash, "mv docs old")
    result = bash("rm AGENTS.md; echo bad > AGENTS.md")
    assert os.readlink(root / "AGENTS.md") == "docs/rules.md"
    assert "restored" in result.text or "Permission denied" in result.text


def test_06_link_to_a_repository_elsewhere_is_read_only(
    bash: Bash, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    git(tmp_path / "elsewhere", "init")
    (root / ".git").symlink_to(tmp_path / "elsewhere/.git")
    assert bash("git status --short").ok
    refused(bash, "echo x > .git/hooks/pre-commit")
    bash("rm .git; mkdir .git")
    assert os.readlink(root / ".git") == str(tmp_path / "elsewhere/.git")


def test_07_link_out_does_not_reach_the_outside(bash: Bash, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("old", encoding="utf-8")
    (root / "link").symlink_to(outside)
    assert "old\n" not in bash("cat link; echo new > link").text
    bash(f"ln -s {outside} mine && echo new > mine")
    refused(bash, "ln -s /etc/passwd system && echo new >> system")
    assert outside.read_text(encoding="utf-8") == "old"


def test_08_hard_link_out_is_refused(bash: Bash, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("old", encoding="utf-8")
    refused(bash, f"ln {outside} mine")
    refused(bash, "ln /etc/passwd mine")
    assert outside.read_text(encoding="utf-8") == "old"
