from __future__ import annotations

import pytest

from pdctl.fields import FieldError, Fields, parse_fields

VALUES = {
    "text": "a",
    "integer": 1,
    "number": 1.5,
    "flag": True,
    "null": None,
    "texts": ["a", "b"],
    "map": {"A": "1", "gone": None},
    "objects": [{"a": 1}],
}


@pytest.fixture
def fields() -> Fields:
    return Fields("the answer", VALUES)


def test_fields_of_the_right_type_are_given(fields):
    assert (fields.text("text"), fields.integer("integer"), fields.number("integer")) == ("a", 1, 1)
    assert (fields.number("number"), fields.flag("flag"), fields.texts("texts")) == (1.5, True, ("a", "b"))
    assert fields.text_map("map") == {"A": "1"}
    assert fields.objects("objects")[0].integer("a") == 1
    assert fields.object("map").what == "the answer.map"


def test_absent_and_null_are_none_where_that_is_allowed(fields):
    for name in ("null", "absent"):
        assert fields.optional_text(name) is None
        assert fields.optional_integer(name) is None
        assert fields.optional_number(name) is None
        assert fields.optional_object(name) is None


@pytest.mark.parametrize("name", ["null", "absent"])
def test_absent_and_null_are_faults_where_a_value_is_needed(fields, name):
    with pytest.raises(FieldError, match=f"the answer has no `{name}`"):
        fields.text(name)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("text", "integer"),
        ("integer", "flag"),  # a bool is an int in Python, not in JSON
        ("integer", "number"),
        ("number", "flag"),
        ("flag", "integer"),
        ("texts", "objects"),
        ("texts", "text"),
        ("text_map", "objects"),
        ("object", "texts"),
        ("objects", "texts"),
        ("items", "map"),
    ],
)
def test_another_type_is_a_fault_that_shows_it(fields, method, name):
    with pytest.raises(FieldError, match=f"`{name}` of the answer is "):
        getattr(fields, method)(name)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"1", b"\xff"])
def test_what_is_not_a_json_object_is_a_fault(text):
    with pytest.raises(FieldError, match="the file is not"):
        parse_fields("the file", text)
