"""What a model may do: files, search, shell, all confined to one workspace.

Reading order: base, errors, protected, workspace, text, encoding, seen; then the tools read, more,
write, edit (with replacing, matching, elsewhere and diff), listing, search (with query, ripgrep,
grep_walk), shell, jobs, git, git_commit, todo; then arguments, executables, toolbox and reference.
The sandbox package below confines commands, the undo package takes back what was changed.
"""

__all__ = [
    "arguments",
    "base",
    "diff",
    "edit",
    "elsewhere",
    "encoding",
    "errors",
    "executables",
    "git",
    "git_commit",
    "grep_walk",
    "jobs",
    "listing",
    "matching",
    "more",
    "protected",
    "query",
    "read",
    "reference",
    "replacing",
    "ripgrep",
    "sandbox",
    "search",
    "seen",
    "shell",
    "text",
    "todo",
    "toolbox",
    "undo",
    "workspace",
    "write",
]
