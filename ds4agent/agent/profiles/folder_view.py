"""What a small model is shown of the folder before it answers: a listing, and named files whole.

A file is shown as the model is to write it: its name, and its text in a fence. Shown means read:
it may be overwritten.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from tools.encoding import detect
from tools.errors import ToolError
from tools.protected import is_hidden
from tools.text import one_line, strip_controls
from tools.toolbox import Toolbox
from tools.workspace import FileMissing

_MOST_ENTRIES = 400  # of the folder and those in it; more is no place to look for a name
_DEEPEST = 3
_JUNK = frozenset({"__pycache__", "node_modules", "target", "build", "dist", "venv"})
_LISTED = 30  # names in the listing
_COUNTED_BYTES = 64 << 10  # larger files are listed without their number of lines
_MOST_SMALL = 8  # files of a folder that is shown as a whole
_SMALL_CHARS = 1200  # of such a folder
_LONGEST_RUN = re.compile("`+")
_MARKDOWN = (".md", ".markdown", ".mdx", ".rst")
# What makes a word that is no file yet the name of one.
_SUFFIXES = frozenset(
    "bat c cfg cc conf cpp cs css csv env go h hpp html ini ipynb java jl js json jsx kt less lock "
    "log lua m md mjs mk php pl pm py pyi r rb rs rst sass scala scss sh sql svg swift tex toml "
    "ts tsv tsx txt vue xml yaml yml zig zsh".split()
)
_WORD = re.compile(r"""(?<![\w/.@:-])@?[\w+-][\w.+-]*(?:/[\w.+-]+)*/?""")


@dataclass(frozen=True, slots=True)
class Named:
    """What the words of a message name."""

    files: tuple[str, ...] = ()  # there
    folders: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # names of files that are not there


class FolderView:
    """The files of a workspace as they are now."""

    def __init__(self, toolbox: Toolbox, ctx: int) -> None:
        """Look around; ``ctx`` (tokens) bounds what is shown."""
        self._toolbox = toolbox
        self._file_chars = min(8000, ctx // 2)
        self._all_chars = min(16000, ctx)
        found = islice(self._walk("", 1), _MOST_ENTRIES)
        self.entries = tuple(sorted(found, key=lambda path: (path.count("/"), path)))
        self._folders = {path.rpartition("/")[0] for path in self.entries} - {""}

    def named(self, text: str) -> Named:
        """Return the files, the folders and the missing files that the words of a text name."""
        files: dict[str, None] = {}
        folders: dict[str, None] = {}
        missing: dict[str, None] = {}
        for found in _WORD.finditer(text):
            word = found.group().lstrip("@").rstrip("./")
            path = self._find(word)
            if path:
                files[path] = None
            elif word in self._folders:
                folders[word] = None
            elif word.rpartition(".")[2].lower() in _SUFFIXES and "." in word.strip("."):
                if not self._is_there(word):
                    missing[word] = None
        return Named(tuple(files), tuple(folders), tuple(missing))

    def whole(self, path: str) -> str | None:
        """Return a file as a block, and note it as read; None when it is too long, no plain
        UTF-8 text, or not to be read."""
        text = self.text(path)
        if text is None or len(text) > self._file_chars:
            return None
        marks = max((len(run) for run in _LONGEST_RUN.findall(text)), default=0)
        fence = "`" * max(4 if path.lower().endswith(_MARKDOWN) else 3, marks + 1)
        self._toolbox.seen.note_content(path, text.encode("utf-8"))
        ending = "" if text.endswith("\n") or not text else "\n"
        return f"{path}\n{fence}\n{text}{ending}{fence}"

    def text(self, path: str) -> str | None:
        """Return the text of a file that could be written back as it is, else None."""
        try:
            data = self._toolbox.workspace.read_bytes(path, _COUNTED_BYTES)
            encoding = detect(data, True, path, len(data))
        except (ToolError, OSError):
            return None
        text = encoding.decode(data)
        is_plain = encoding.name == "utf-8" and not encoding.mark and "\r" not in text
        return text if is_plain and strip_controls(text) == text else None

    def blocks(self, paths: Sequence[str]) -> dict[str, str]:
        """Return path -> block of those that can be shown, as many as there is room for."""
        shown: dict[str, str] = {}
        room = self._all_chars
        for path in paths:
            block = self.whole(path) if room > 0 else None
            if block is not None and len(block) <= room:
                shown[path] = block
                room -= len(block)
        return shown

    def in_folder(self, folder: str) -> tuple[str, ...]:
        """Return the files of a folder ("" for all) when they are few and small, else none."""
        paths = [path for path in self.entries if path.startswith(f"{folder}/" if folder else "")]
        if not 0 < len(paths) <= _MOST_SMALL:
            return ()
        texts = [self.text(path) for path in paths]
        if any(text is None for text in texts) or sum(map(len, texts)) > _SMALL_CHARS:
            return ()
        return tuple(paths)

    def listing(self) -> str:
        """Return a line with the names and sizes of the files."""
        if not self.entries:
            return "The folder is empty."
        names = [self._described(path) for path in self.entries[:_LISTED]]
        n_more = len(self.entries) - len(names)
        more = f", and {n_more} more" if n_more else ""
        return f"Files: {', '.join(names)}{more}."

    def _described(self, path: str) -> str:
        text = self.text(path)
        if text is None:
            return one_line(path)
        n_lines = text.count("\n") + (text != "" and not text.endswith("\n"))
        return f"{one_line(path)} ({n_lines} line{'' if n_lines == 1 else 's'})"

    def _is_there(self, path: str) -> bool:
        try:
            with self._toolbox.workspace.open_file(path):
                return True
        except FileMissing:
            return False
        except (ToolError, OSError):
            return True  # there, and none of the model's business

    def _find(self, word: str) -> str:
        """Return the path that a word means: itself, or the one file of that name."""
        if word in self.entries:
            return word
        if "." not in word:
            return ""
        same = [path for path in self.entries if path.endswith(f"/{word}")]
        return same[0] if len(same) == 1 else ""

    def _walk(self, folder: str, depth: int) -> Iterator[str]:
        try:
            with self._toolbox.workspace.open_folder(folder or ".") as (fd, _):
                found = []
                for name in sorted(os.listdir(fd))[:_MOST_ENTRIES]:
                    mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
                    found.append((name, mode))
        except (ToolError, OSError):
            return
        for name, mode in found:
            if name.startswith(".") or is_hidden(name) or name in _JUNK:
                continue
            path = f"{folder}/{name}" if folder else name
            if stat.S_ISREG(mode):
                yield path
            elif stat.S_ISDIR(mode) and depth < _DEEPEST:
                yield from self._walk(path, depth + 1)
