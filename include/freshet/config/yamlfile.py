"""A YAML file with the line of every value.

The scalars are those of YAML 1.2: only true and false are booleans (a column may be called `no`), dates
and numbers with colons stay text. A key that stands twice in one mapping is a problem, not a surprise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from freshet.config.problems import DefinitionFileError, Field, Problem

_SYNTAX_REMEDY = (
    'Check indentation and quotes there; text with ": ", "{", "," or a leading "@" needs quotes, '
    'such as "@daily"'
)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML declares it so


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})$"), _first)


@dataclass
class Document:
    """The content of a YAML file, where each value stands, and the keys written twice."""

    value: Any
    lines: dict[Field, int]
    problems: list[Problem]

    def line(self, field: Field) -> int | None:
        """The line of a field, or of the nearest thing around it."""
        while field and field not in self.lines:
            field = field[:-1]
        return self.lines.get(field)


def read_yaml(path: Path) -> Document:
    """The one document of a YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DefinitionFileError(
            path, [Problem((), f"cannot be read ({error.strerror})", "Check the file and its rights")]
        ) from None
    except UnicodeDecodeError:
        raise DefinitionFileError(path, [Problem((), "is not UTF-8 text", "Save it as UTF-8")]) from None
    loader = _Loader(text)
    document = Document(None, {}, [])
    try:
        node = loader.get_single_node()
        if node is not None:
            _walk(node, (), document, frozenset())  # before construction, which rewrites merged mappings
            document.value = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise DefinitionFileError(path, [_syntax_problem(error)]) from None
    except RecursionError:
        raise DefinitionFileError(path, [Problem((), "is nested too deeply", "Write it flatter")]) from None
    except (yaml.YAMLError, ValueError) as error:
        raise DefinitionFileError(path, [Problem((), f"is not YAML ({error})", _SYNTAX_REMEDY)]) from None
    finally:
        loader.dispose()
    return document


def _syntax_problem(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    said = ", ".join(part for part in (error.context, error.problem) if part)
    place = f" at column {mark.column + 1}" if mark else ""
    return Problem(
        (), f"YAML syntax error{place}: {said}", _SYNTAX_REMEDY, line=mark.line + 1 if mark else None
    )


def _walk(node: yaml.Node, field: Field, document: Document, above: frozenset[int]) -> None:
    """Note the lines below a node; `above` stops an alias that contains itself."""
    document.lines.setdefault(field, node.start_mark.line + 1)
    if id(node) in above:
        return
    above |= {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            _walk(item, (*field, position), document, above)
    elif isinstance(node, yaml.MappingNode):
        _walk_mapping(node, field, document, above)


def _walk_mapping(node: yaml.MappingNode, field: Field, document: Document, above: frozenset[int]) -> None:
    first_lines: dict[str, int] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in first_lines:
            document.problems.append(
                Problem(
                    (*field, name),
                    f"stands twice, first on line {first_lines[name]}",
                    "Remove one of them",
                    line=line,
                )
            )
        first_lines.setdefault(name, line)
        document.lines[(*field, name)] = line
        _walk(value, (*field, name), document, above)
