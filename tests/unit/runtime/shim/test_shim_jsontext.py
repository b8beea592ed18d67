"""JSON as the shim reads and writes it is the JSON of `json`, without loading it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.executors.archive import shim_archive
from runtime.shim import jsontext

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_values_are_written_and_read_as_json_does_it(value):
    assert jsontext.dumps(value) == json.dumps(value)
    assert jsontext.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")) == value


@given(st.text() | st.binary())
def test_what_is_no_json_for_json_is_none_here(text):
    assert _read(jsontext.loads, text) == _read(json.loads, text)


def _read(loads, text) -> str:
    try:
        return repr(loads(text))  # NaN differs from itself
    except ValueError:
        return "no JSON"


@pytest.mark.parametrize("text", [b' \n{"a": [1, 2.5, -Infinity]}\t\n', "[]", b'\xef\xbb\xbf"mark"'])
def test_blanks_and_odd_numbers_are_read(text):
    assert jsontext.loads(text) == json.loads(text)


def test_damaged_json_is_told_where_json_was_not_loaded():
    """The accelerator takes its errors from `json`; without it, it has none to raise."""
    ask = (
        "import sys; from runtime.shim.jsontext import loads\n"
        "assert 'json' not in sys.modules\n"
        "try: loads(sys.argv[1])\n"
        "except ValueError: print('no JSON')"
    )
    for text in ('{"boot_id": "', "{", "[1,", '"', "nul", "{]"):
        done = subprocess.run(
            [sys.executable, "-S", "-c", ask, text],
            cwd=jsontext.__file__.removesuffix("/runtime/shim/jsontext.py"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "no JSON\n", done.stderr


# It wants an option that `json` has and we don't know of, as a later Python's may.
DEMANDING = """
def make_scanner(options):
    options.parse_object
    from json.scanner import py_make_scanner
    return py_make_scanner(options)
"""


@pytest.mark.parametrize("scanner", ["make_scanner = None", DEMANDING])
def test_a_python_whose_accelerator_differs_is_served_by_json(tmp_path, scanner):
    text = f"{scanner}\nmake_encoder = encode_basestring_ascii = scanstring = None\n"
    (tmp_path / "_json.py").write_text(text)
    ask = "from runtime.shim import jsontext as j; print(j.loads(b'[1, 2]'), j.dumps({'a': None}))"
    tree = jsontext.__file__.removesuffix("/runtime/shim/jsontext.py")
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {tree!r}]; {ask}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == '[1, 2] {"a": null}\n', done.stderr


def test_frequent_verbs_load_no_slow_modules(tmp_path):
    """Each of these costs as much CPU as a bare interpreter, on every node, for every call."""
    shim = tmp_path / shim_archive().name
    shim.write_bytes(shim_archive().content)
    calls = [
        {"verb": "status", "names": [str(tmp_path), "d"]},
        {"verb": "probe", "request": {"requests": [{"url": "http://127.0.0.1:1/", "timeout_s": 1}]}},
        {"verb": "ports", "request": {"queries": [{"host": "127.0.0.1", "port": 1}]}},
        {"verb": "route", "request": {"targets": ["127.0.0.1"]}},
        {"verb": "prove", "names": [str(tmp_path), "d"]},
        {"verb": "forget", "names": [str(tmp_path), "d"]},
        {"verb": "holder", "names": [str(tmp_path), "d"]},
        {"verb": "start", "names": [str(tmp_path), "d", "p"], "request": {"format": 0}},
        {"verb": "stop", "names": [str(tmp_path), "d", "p"]},
        {"verb": "survey", "names": [str(tmp_path)], "request": {"nodes": [{"listen": []}]}},
        {"verb": "dial", "request": {"nodes": [{"targets": [{"host": "127.0.0.1", "port": 1}]}]}},
    ]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", shim, "do"],
        input=json.dumps({"calls": calls}),
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": str(tmp_path)},  # no nvidia-smi
    )
    assert [list(each) for each in json.loads(done.stdout)].count(["error"]) == 1  # the spec of `start`
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "shim.status" in loaded
    assert loaded.isdisjoint({"enum", "re", "json", "signal", "socket", "threading", "shutil", "subprocess"})
