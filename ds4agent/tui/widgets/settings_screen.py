"""The settings: each with its value, where that comes from, and what it does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ds4agent.config import Config, settings
from ds4agent.errors import ConfigError, explain
from ds4agent.settings_file import SettingsFile
from ds4agent.tui.plain import one_line, visible
from ds4agent.tui.theme import NOTE

_NAME_CELLS = 14
_VALUE_CELLS = 20
_KEYS = "Enter changes · Del: the built-in value · Esc closes"


class SettingsScreen(ModalScreen[None]):
    """Changes the person's own file; what a project, a variable or a flag sets stays so.

    Args:
        config: the settings in force.
        on_changed: gets the settings after each change, and the name of what was changed.
        at_once: names of the settings that hold from the change on.
    """

    def __init__(
        self,
        config: Config,
        on_changed: Callable[[Config, str], None],
        at_once: Sequence[str] = (),
    ) -> None:
        super().__init__(classes="dialog")
        self._at_once = at_once
        self._config = config
        self._on_changed = on_changed
        self._file = SettingsFile()
        self._settings = settings()

    def compose(self) -> ComposeResult:
        with Vertical(id="settings", classes="dialog-box"):
            yield Static("Settings", classes="dialog-title", markup=False)
            yield OptionList(id="settings-list", markup=False)
            yield Static("", id="settings-about", markup=False)
            yield Input(id="settings-value")
            yield Static(_KEYS, id="settings-note", classes="dialog-note", markup=False)

    def on_mount(self) -> None:
        entry = self.query_one(Input)
        entry.display = False
        entry.cursor_blink = False  # a blinking cursor is a timer that never stops
        self._list.add_options([Option(self._row(setting)) for setting in self._settings])
        self._list.highlighted = 0
        self._list.focus()

    @property
    def _list(self) -> OptionList:
        return self.query_one("#settings-list", OptionList)

    @property
    def _setting(self) -> Any:
        return self._settings[self._list.highlighted or 0]

    # --- keys ------------------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        entry = self.query_one(Input)
        match event.key:
            case "escape" | "ctrl+c" if entry.display:
                self._close_entry()
            case "escape" | "ctrl+c" | "f2":
                self.dismiss(None)
            case "delete" | "backspace" if not entry.display:
                self._remove()
            case "left" | "right" if not entry.display:
                self._step(1 if event.key == "right" else -1)
            case _:
                return
        event.stop()
        event.prevent_default()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self._close_entry()
        self._tell_about()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        setting = self._setting
        value = getattr(self._config, setting.name)
        if isinstance(value, tuple | Mapping):
            self._note(f"A list: write it into {one_line(str(self._file.path))}.")
        elif isinstance(value, bool) or setting.metadata["choices"]:
            self._step(1)
        else:
            entry = self.query_one(Input)
            entry.value = "" if value is None else str(value)
            entry.display = True
            entry.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._write(event.value.strip())

    # --- changing --------------------------------------------------------------------------------

    def _step(self, step: int) -> None:
        """Go to the next value of a setting that has a few."""
        setting = self._setting
        value = getattr(self._config, setting.name)
        choices: Sequence[str] = setting.metadata["choices"]
        if isinstance(value, bool):
            self._write("false" if value else "true")
        elif choices:
            self._write(choices[(choices.index(value) + step) % len(choices)])

    def _write(self, text: str) -> None:
        self._change(lambda name: self._file.write(name, text))

    def _remove(self) -> None:
        self._change(self._file.remove)

    def _change(self, action: Callable[[str], Any]) -> None:
        name = self._setting.name
        try:
            action(name)
            self._config = self._file.changed(self._config, name)
        except ConfigError as error:
            self._note(explain(error))
            return
        self._close_entry()
        self._list.replace_option_prompt_at_index(
            self._list.highlighted or 0, self._row(self._setting)
        )
        self._tell_about()
        if not self._file.is_in_force(self._config, name):
            self._note(f"Written, but {one_line(self._config.origin(name))} decides here.")
        else:
            self._note("" if name in self._at_once else "Written; it holds from the next start.")
        self._on_changed(self._config, name)

    def _close_entry(self) -> None:
        self.query_one(Input).display = False
        self._list.focus()

    # --- showing ---------------------------------------------------------------------------------

    def _row(self, setting: Any) -> Content:
        value = _shown(getattr(self._config, setting.name))
        value = value if len(value) <= _VALUE_CELLS else value[: _VALUE_CELLS - 1] + "…"
        origin = one_line(self._config.origin(setting.name))
        return Content.assemble(
            (f"{setting.name:<{_NAME_CELLS}} ", "bold"),
            f"{value:<{_VALUE_CELLS}} ",
            ("" if origin == "default" else origin, NOTE),
        )

    def _tell_about(self) -> None:
        setting = self._setting
        about = setting.metadata["help"]
        if setting.metadata["choices"]:
            about += f" ({', '.join(setting.metadata['choices'])})"
        self.query_one("#settings-about", Static).update(Content(about))
        self._note("")

    def _note(self, text: str) -> None:
        self.query_one("#settings-note", Static).update(Content(text or _KEYS))


def _shown(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case None | "":
            return "(not set)"
        case tuple() | Mapping():
            return f"{len(value)} entries" if value else "(none)"
        case _:
            return one_line(visible(str(value)))
