"""The list of slash commands that match what is being typed."""

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ds4agent.commands import CommandTable, SlashCommand


class Suggestions(OptionList, can_focus=False):
    """Open while the composer holds the beginning of a command; never takes the keyboard."""

    def __init__(self, table: CommandTable) -> None:
        self._table = table
        super().__init__(id="suggestions", markup=False)
        self.display = False
        self._matches: tuple[SlashCommand, ...] = ()

    @property
    def is_open(self) -> bool:
        return bool(self.display)

    def show_for(self, text: str) -> None:
        """Open with the commands that begin with ``text``, or close."""
        is_word = text.startswith("/") and not any(char.isspace() for char in text)
        matches = self._table.completions(text) if is_word else ()
        if matches != self._matches:
            self._matches = matches
            self._list()
        self.display = bool(matches)

    def _list(self) -> None:
        self.clear_options()
        width = max((len(entry.usage) for entry in self._matches), default=0) + 2
        for entry in self._matches:
            row = Content.assemble((entry.usage.ljust(width), "bold"), (entry.help, "dim"))
            self.add_option(Option(row))
        if self._matches:
            self.highlighted = 0

    def move(self, step: int) -> None:
        """Highlight the next or the previous command."""
        if self._matches:
            self.highlighted = ((self.highlighted or 0) + step) % len(self._matches)

    def completion(self) -> str:
        """Return the highlighted command, with a space where an argument follows."""
        entry = self._matches[self.highlighted or 0]
        return f"/{entry.name} " if entry.argument else f"/{entry.name}"

    def close(self) -> None:
        """Hide until the text changes."""
        self.display = False
