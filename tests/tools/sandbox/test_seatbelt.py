"""The profile for macOS as text: golden, since it cannot be run on another system."""

from dataclasses import replace
from pathlib import Path

from tests.tools.sandbox.test_policy import POLICY
from tools.sandbox.macos_seatbelt import seatbelt_arguments, seatbelt_profile

TEMPORARY = Path("/private/var/t/x")
GOLDEN = """\
(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal process-info* (target same-sandbox))
(allow sysctl-read)
(allow ipc-posix-sem)
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
(allow file-read* file-write-data
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random") (literal "/dev/urandom"))
(allow file-read-metadata (literal "/") (literal "/private") (literal "/private/tmp")
  (literal "/private/var") (literal "/tmp") (literal "/var") (literal "/etc"))
(allow file-read-metadata
  (literal (param "AROUND_0"))
  (literal (param "AROUND_1"))
  (literal (param "AROUND_2"))
  (literal (param "AROUND_3")))
(allow file-read*
{readable})
(allow file-write*
  (subpath (param "WRITABLE_0"))
  (subpath (param "WRITABLE_1")))
(deny file-write*
  (regex (param "PROTECTED_0"))
  (regex (param "PROTECTED_1")))
(deny file-write-unlink
  (regex (param "PINNED_0"))
  (regex (param "PINNED_1")))
(deny file-read* file-write*
  (regex (param "HIDDEN_0"))
  (regex (param "HIDDEN_1"))
  (regex (param "HIDDEN_2"))
  (regex (param "HIDDEN_3"))
  (regex (param "HIDDEN_4"))
  (regex (param "HIDDEN_5")))
"""


def test_26_profile_is_exactly_this() -> None:
    text, values = seatbelt_profile(POLICY, TEMPORARY)
    readable = "\n".join(f'  (subpath (param "READABLE_{i}"))' for i in range(20))
    assert text == GOLDEN.replace("{readable}", readable)
    assert values["WRITABLE_0"] == "/w" and values["WRITABLE_1"] == "/private/var/t/x"
    assert values["READABLE_17"] == "/h/.cargo"
    assert [values[f"AROUND_{i}"] for i in range(4)] == [
        "/h", "/private", "/private/var", "/private/var/t",
    ]  # fmt: skip
    assert values["PROTECTED_0"] == r"^/[wW]/[sS][uU][bB]/\.[gG][iI][tT](/|$)"
    assert values["PINNED_1"] == "^/[wW]/[sS][uU][bB]$"
    assert values["HIDDEN_4"] == r"^/[wW]/\.[eE][nN][vV](/|$)"


def test_26_no_path_is_part_of_the_text() -> None:
    nasty = Path('/w") (allow default) ("')
    policy = replace(POLICY, root=nasty, protected=(nasty / ".git",))
    text, values = seatbelt_profile(policy, TEMPORARY)
    assert "allow default" not in text and values["WRITABLE_0"] == str(nasty)


def test_26_terminal_only_where_asked_for() -> None:
    assert "pseudo-tty" not in seatbelt_profile(POLICY, TEMPORARY)[0]
    assert "(allow pseudo-tty)" in seatbelt_profile(POLICY, TEMPORARY, has_terminal=True)[0]


def test_26_command_is_one_argument_and_the_environment_is_made_new() -> None:
    arguments = seatbelt_arguments(POLICY, TEMPORARY, "/bin/sh", "echo $HOME; --x")
    assert arguments[0] == "/usr/bin/sandbox-exec" and arguments[-1] == "echo $HOME; --x"
    at = arguments.index("/usr/bin/env")
    assert arguments[at : at + 5] == [
        "/usr/bin/env", "-i", f"HOME={TEMPORARY}", "PATH=/usr/bin", f"TMPDIR={TEMPORARY}",
    ]  # fmt: skip
