"""What is wrong with a record, told from its text."""

from __future__ import annotations

import pytest

from freshet.streaming.csv_lines import CsvFormat
from freshet.streaming.records import csv_fault, json_fault

COLUMNS = {"id": "string"}
NUMBERS = {"id": "string", "a": "int", "b": "int"}


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


@pytest.mark.parametrize(
    ("options", "line", "nulls", "detail"),
    [
        ({}, "i,x,", ["a", "b"], 'a: "x" is not int'),
        ({"nullValue": "NA"}, "i,x,NA", ["a", "b"], 'a: "x" is not int'),
        ({"nullValue": "NA"}, 'i,"NA",""', ["a", "b"], 'b: "" is not int'),
        ({"nullValue": "NA", "ignoreLeadingWhiteSpace": "true"}, "i, NA,x", ["a", "b"], 'b: "x" is not int'),
        ({"nullValue": "NA"}, "i, NA,1", ["a"], 'a: " NA" is not int'),
        ({"quote": "'"}, "'i,i',x,1", ["a"], 'a: "x" is not int'),
        ({"quote": "'"}, '"i,i",x,1', [], "4 fields, not 3"),
        ({}, '"i\\",i",x,1', ["a"], 'a: "x" is not int'),
        ({"escape": '"'}, '"i"",""i",x,1', ["a"], 'a: "x" is not int'),
        ({"escape": "^", "delimiter": ";"}, '"i^";i";x;1', ["a"], 'a: "x" is not int'),
        ({"ignoreLeadingWhiteSpace": "true"}, ' "i,i",x,1', ["a"], 'a: "x" is not int'),
    ],
)
def test_the_fault_of_a_csv_line_is_found_with_the_options_of_the_stream(
    options: dict[str, str], line: str, nulls: list[str], detail: str
) -> None:
    fault = csv_fault(line, NUMBERS, nulls, CsvFormat.of(options))
    assert fault is not None and fault.detail == detail


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("", [""]),
        ("a,,b,", ["a", "", "b", ""]),
        ('"a,b",c', ["a,b", "c"]),
        ('"a,b', ["a,b"]),
        ('a,"', ["a", '"']),
        ('"a"b,c', ['"a"b', "c"]),
        ('a"b,c"', ['a"b', 'c"']),
        ('"a" ,b', ["a", "b"]),
        (r'"a\\",b', ["a\\", "b"]),
        (r"a\,b", ["a\\", "b"]),
        ("\u2028x,b", ["\u2028x", "b"]),
    ],
)
def test_a_line_has_the_fields_that_spark_finds(line: str, texts: list[str]) -> None:
    assert [field.text for field in CsvFormat().fields(line)] == texts
