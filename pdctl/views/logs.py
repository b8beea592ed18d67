"""Merged output of several processes: each line behind the id of its process."""

from __future__ import annotations

from pdctl.executors.calls import LogNotice
from pdctl.views.canvas import PREFIX_STYLES, Canvas, Style
from pdctl.views.text import display_width, pad, printable


class LogPrefixes:
    """Draws log lines. Processes get their colours, and the column its width, as they appear."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self._styles: dict[str, str] = {}
        self._cells = 0

    def line(self, process_id: str, text: str) -> str:
        """One line, whole: what programs say is never shortened."""
        if process_id not in self._styles:
            self._styles[process_id] = PREFIX_STYLES[len(self._styles) % len(PREFIX_STYLES)]
            self._cells = max(self._cells, display_width(process_id))
        prefix = f"{pad(process_id, self._cells)} {self._canvas.bar}"
        return f"{self._canvas.paint(prefix, self._styles[process_id])} {printable(text)}".rstrip()


def notice_line(notice: LogNotice, canvas: Canvas) -> str:
    """What happens to the stream itself, apart from what programs say."""
    return f"{canvas.paint('logs:', Style.WARNING)} {notice.node} {printable(notice.text)}"
