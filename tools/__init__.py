"""What a model may do: files, search, shell, all confined to one workspace.

Reading order: base, errors, protected, workspace, text, encoding, seen; then the tools read,
write, edit (with matching and diff), listing, search (with query, ripgrep, grep_walk), shell; then
arguments, executables and toolbox. The sandbox package below confines commands.
"""

__all__ = [
    "arguments",
    "base",
    "diff",
    "edit",
    "encoding",
    "errors",
    "executables",
    "grep_walk",
    "listing",
    "matching",
    "protected",
    "query",
    "read",
    "ripgrep",
    "sandbox",
    "search",
    "seen",
    "shell",
    "text",
    "toolbox",
    "workspace",
    "write",
]
