from __future__ import annotations

from collections.abc import Callable

from pdctl.flagtable.model import Flag, FlagTable, Unread, ValueType
from pdctl.views.canvas import Canvas
from pdctl.views.flags import flag_lines

TABLE = FlagTable.of(
    "sglang",
    "0.5.23",
    [
        Flag(name="tp-size", aliases=("tensor-parallel-size",), type=ValueType.INT, default=1),
        Flag(name="trust-remote-code", nargs=0, default=False),
        Flag(name="dllm-fdfo", nargs=0, negation="no-dllm-fdfo"),
        Flag(name="deepep-mode", choices=("auto", "normal", "low_latency"), default="auto"),
        Flag(name="encoder-urls", nargs="+", default=()),
        Flag(name="lora-paths", nargs="*"),
        Flag(name="model-checksum", nargs="?"),
        Flag(name="cuda-graph-config", type=ValueType.OPAQUE),
        Flag(name="cuda-graph-bs", type=ValueType.INT, nargs="+", default=(1, 2), is_deprecated=True),
        Flag(name="tool-call-parser", unread=(Unread.CHOICES,)),
    ],
)


def test_each_flag_is_shown_with_what_it_takes(golden: Callable[[str, str], None]) -> None:
    golden("screens/flags.txt", "\n".join(flag_lines(TABLE, Canvas(width=80))) + "\n")


def test_a_narrow_screen_shows_the_same(golden: Callable[[str, str], None]) -> None:
    golden("screens/flags-40.txt", "\n".join(flag_lines(TABLE, Canvas(width=40))) + "\n")
