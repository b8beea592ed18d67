"""Screens that list: names, models, bad nodes, codes."""

from __future__ import annotations

from collections.abc import Callable

from pdctl.executors.slurm_job.bad_nodes import BadNode
from pdctl.views.canvas import Canvas
from pdctl.views.explanation import Code, code_lines, explanation_lines
from pdctl.views.listing import Entry, listing_lines
from pdctl.views.models import KnownModel, described, models_lines
from pdctl.views.nodes import nodes_lines
from pdctl.views.text import display_width

Golden = Callable[[str, str], None]

MODEL = KnownModel(
    name="smollm2-135m-instruct",
    size_bytes=98_362_432,
    licence="Apache-2.0",
    is_cached=False,
    path="/c/m.gguf",
)
PAGE = """# PD302: page sizes differ

A page is the unit in which KV is transferred, so both sides must cut it alike.

```yaml
defaults:
  args: {page-size: 64}
```
"""


def test_names_stand_under_their_kind(golden: Golden) -> None:
    entries = (
        Entry(
            kind="topologies",
            name="topologies/laptop_1p1d.yaml",
            about="One prefill and one decode instance.",
        ),
        Entry(kind="topologies", name="topologies/big.yaml"),
        Entry(kind="engines", name="reference"),
    )
    golden("screens/list.txt", "\n".join(listing_lines(entries, Canvas(width=60))) + "\n")


def test_a_model_in_the_cache_is_shown_with_its_path(golden: Golden) -> None:
    cached = KnownModel(name="tiny", size_bytes=1024, licence="MIT", is_cached=True, path="/c/tiny.gguf")
    golden("screens/models.txt", "\n".join(models_lines((MODEL, cached), Canvas(width=80))) + "\n")
    assert described(MODEL) == "94 MiB, Apache-2.0, not in the cache"
    assert described(cached) == "1.0 KiB, MIT, in the cache"


def test_a_bad_node_is_shown_with_its_evidence(golden: Golden) -> None:
    now = 1_800_000_000.0
    nodes = (
        BadNode(
            name="gpu07",
            why="it stopped answering: Not responding",
            seen_at=now - 7_300,
            expires_at=now + 2 * 86_400,
            num_times=2,
            deployment="deepseek-v3",
            job_id=4711,
        ),
        BadNode(name="gpu13", why="fans", seen_at=now - 60, expires_at=now + 3_600),
    )
    wide = "\n".join(nodes_lines(nodes, now, Canvas(width=100)))
    narrow = "\n".join(nodes_lines(nodes, now, Canvas(width=50)))
    golden("screens/nodes.txt", f"{wide}\n\n{narrow}\n")


def test_codes_are_listed_with_their_titles() -> None:
    assert list(code_lines((Code(code="PD302", title="page sizes differ"),), Canvas())) == [
        "PD302  page sizes differ"
    ]


def test_an_explanation_is_wrapped_but_its_code_is_not(golden: Golden) -> None:
    lines = list(explanation_lines(PAGE, Canvas(width=40)))
    golden("screens/explain-40.txt", "\n".join(lines) + "\n")
    assert all(display_width(line) <= 40 for line in lines)
