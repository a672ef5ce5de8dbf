"""The list of what could come next: commands, arguments, files, earlier messages."""

from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ds4agent.completion.suggest import Suggestion
from ds4agent.tui.plain import one_line
from ds4agent.tui.theme import NOTE


class Suggestions(OptionList, can_focus=False):
    """Open while the composer has suggestions; never takes the keyboard."""

    def __init__(self) -> None:
        super().__init__(id="suggestions", markup=False)
        self.display = False
        self.was_moved = False  # the person chose, rather than took the first
        self._shown: tuple[Suggestion, ...] = ()

    @property
    def is_open(self) -> bool:
        return bool(self.display)

    @property
    def n_shown(self) -> int:
        return len(self._shown) if self.is_open else 0

    def show(self, suggestions: Sequence[Suggestion]) -> None:
        """Open with these, best first; close when there are none."""
        shown = tuple(suggestions)
        if [(s.label, s.note) for s in shown] != [(s.label, s.note) for s in self._shown]:
            self._list(shown)
        self._shown = shown
        self.display = bool(shown)

    def _list(self, shown: Sequence[Suggestion]) -> None:
        self.clear_options()
        self.was_moved = False
        width = max((cell_len(s.label) for s in shown if s.note), default=0) + 2
        room = max(20, self.app.size.width - 5)  # one line each: a list that jumps is no help
        for suggestion in shown:
            label, note = one_line(suggestion.label), one_line(suggestion.note)
            gap = " " * (width - cell_len(label)) if note else ""
            row = Content.assemble((label, "bold"), gap, (note, NOTE))
            self.add_option(Option(row.truncate(room, ellipsis=True)))
        if shown:
            self.highlighted = 0

    def move(self, step: int) -> None:
        """Highlight the next or the previous one."""
        if self._shown:
            self.was_moved = True
            self.highlighted = ((self.highlighted or 0) + step) % len(self._shown)

    @property
    def chosen(self) -> Suggestion:
        """The highlighted one, while the list is open."""
        return self._shown[self.highlighted or 0]

    def close(self) -> None:
        """Hide until the text changes."""
        self.display = False
