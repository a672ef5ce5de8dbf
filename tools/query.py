"""What a search looks for, as plain data shared by both ways to search."""

import fnmatch
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from tools.errors import ToolError
from tools.protected import is_hidden

# A match: the file's path relative to the workspace, the line number from 1, and the line.
Match = tuple[PurePosixPath, int, str]
MAX_FILE_BYTES = 16 << 20  # larger files are data, not text that someone wrote


@dataclass(frozen=True, slots=True)
class Query:
    """A checked search. ``folder`` is relative to the workspace; it may also name one file."""

    text: str
    is_regex: bool
    folder: PurePosixPath
    glob: str = ""

    def wants(self, path: PurePosixPath) -> bool:
        """True when a file may be shown: it is not hidden, and the glob names it or its path."""
        if is_hidden(path.name):
            return False
        if not self.glob:
            return True
        pattern = self.glob.removeprefix("./")
        names = (path.name, str(path))
        patterns = (pattern, pattern.replace("**/", ""))
        return any(fnmatch.fnmatchcase(name, p) for name in names for p in patterns)


def compile_pattern(query: Query) -> re.Pattern[str]:
    """Compile the query for Python's matcher.

    That matcher can take exponential time for a repeated group that contains a repetition, and
    nothing can stop it; such patterns are refused.
    """
    if not query.is_regex:
        return re.compile(re.escape(query.text))
    if re.search(r"\([^()]*[+*}][^()]*\)\s*[+*{]", query.text):
        raise ToolError(
            "the pattern repeats a group that contains a repetition", "Use a simpler pattern."
        )
    try:
        return re.compile(query.text)
    except re.error as error:
        raise ToolError(
            f"the pattern is no regular expression: {error}", "Correct it, or set regex to false."
        ) from error
