"""What is wrong with a record, told from its text."""

from __future__ import annotations

import pytest

from freshet.streaming.records import json_fault

COLUMNS = {"id": "string"}


@pytest.mark.parametrize(
    "text",
    [
        '{"id":"a"}',
        '{"id":"a","more":{"x":1}}  ',
        "{'id':'a','more':{'x':'}'}}",  # Spark takes single quotes, Python does not
        '{"id":"a","more":' + '{"x":' * 5000 + "1" + "}" * 5001,
    ],
)
def test_a_parsed_line_with_nothing_behind_its_object_is_sound(text: str) -> None:
    assert json_fault(text, COLUMNS, (), parsed=True) is None


@pytest.mark.parametrize(
    "rest", ['{"id":"b"}', '|{"id":"b"}', ']{"id":"b"}', ',{"id":"b"}', " junk}", "}", "'}'"]
)
@pytest.mark.parametrize("first", ['{"id":"a"}', "{'id':'}'}", '{"id":"\\"}"}'])
def test_what_stands_behind_the_object_of_a_line_makes_it_malformed(first: str, rest: str) -> None:
    fault = json_fault(first + rest, COLUMNS, (), parsed=True)
    assert fault is not None and fault.reason == "malformed"
