"""Progress on a terminal: one line per process, redrawn in place, gone when the operation is over."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import IO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pdctl.events import Event
from pdctl.views.board import Board, after, board_lines
from pdctl.views.canvas import Canvas, Writable

REFRESHES_PER_S = 8


class LiveProgress:
    """An `EventSink` that redraws. Events may come from several threads; use it as a context manager."""

    def __init__(self, out: Writable, canvas: Canvas) -> None:
        self._canvas = canvas
        self._board = Board()
        self._lock = threading.Lock()
        self._console = Console(
            file=cast(IO[str], out),  # it only writes and flushes
            force_terminal=True,
            no_color=not canvas.color,
            color_system="standard" if canvas.color else None,
            highlight=False,
            markup=False,
        )
        self._live = Live(
            console=self._console,
            get_renderable=self._rendered,
            refresh_per_second=REFRESHES_PER_S,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def on(self, *events: Event) -> None:
        with self._lock:
            for event in events:
                self._board = after(self._board, event)

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def _rendered(self) -> Text:
        """Drawn anew at each refresh, so that a resized window is obeyed."""
        with self._lock:
            board = self._board
        size = self._console.size
        canvas = Canvas(width=size.width, color=self._canvas.color, unicode=self._canvas.unicode, live=True)
        lines = board_lines(board, canvas, max_lines=max(2, size.height - 2))
        return Text.from_ansi("\n".join(lines), no_wrap=True, overflow="crop")
