"""Derived columns: which expressions a definition may use.

An expression is computed for each row on its own and must give the same value in every retry of its
batch. Plain arithmetic and the commonest functions are recognised with Python's own parser, whose grammar
agrees with Spark's there; everything else is parsed by sqlglot, which takes so long to import that a DAG
file should not pay for it without need.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from freshet.config.functions import AGGREGATES, ALLOWED, BARE, CHANGING, WORDS
from freshet.config.moments import has_moment
from freshet.config.names import nearest, suggestion

Finding = tuple[str, str]
"""What is wrong with an expression, and the remedy."""

_PLAIN_TEXT = re.compile(r"[A-Za-z0-9_ .,+\-*/%()]+", re.ASCII)
_UNLIKE_SQL = re.compile(r"\*\*|//|--|,\s*\)|\b0\d|(?<!\w)\.?\d[\d.]*[A-Za-z_]", re.ASCII)
_PLAIN_CALLS = {"abs": 1, "ceil": 1, "floor": 1, "length": 1, "lower": 1, "round": 2, "trim": 1, "upper": 1}
"""Functions that plain expressions may call, with the most arguments they take."""
_PLAIN_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.USub, ast.UAdd,
    ast.Name, ast.Load, ast.Constant, ast.Call,
)  # fmt: skip
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_STABLE_REMEDY = "Use only functions that give the same value in every retry of a batch"
_MOMENT_REMEDY = (
    "Spark takes these words for a time where it expects one: leave them out; where a text is meant and its "
    "column's type is not known here, say so, as in cast(NAME as string) = 'today'"
)
_ROW_REMEDY = "Compute it from one row's columns; aggregate when you query the facts"


def findings(
    expression: str, columns: Collection[str], types: Mapping[str, str] | None = None
) -> list[Finding]:
    """Everything that keeps an expression from being a derived column over these columns.

    `types` are the types of those columns of which they are known.
    """
    known = {column.lower() for column in columns}
    if _is_plain(expression, known):
        return []
    return list(_thorough(expression, columns, known, types or {}))


def _is_plain(expression: str, known: Collection[str]) -> bool:
    """Whether an expression is arithmetic and allowed functions over known columns, and nothing else."""
    if not _PLAIN_TEXT.fullmatch(expression) or _UNLIKE_SQL.search(expression):
        return False
    try:
        nodes = list(ast.walk(ast.parse(expression.strip(), mode="eval")))
    except (SyntaxError, RecursionError, MemoryError):
        return False
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return all(_is_plain_node(node, known) for node in nodes if id(node) not in called)


def _is_plain_node(node: ast.AST, known: Collection[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id.lower() in known
    if isinstance(node, ast.Call):
        most = _PLAIN_CALLS.get(node.func.id.lower(), 0) if isinstance(node.func, ast.Name) else 0
        return 1 <= len(node.args) <= most and not node.keywords
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    return isinstance(node, _PLAIN_NODES)


def _thorough(
    expression: str, columns: Collection[str], known: Collection[str], types: Mapping[str, str]
) -> Iterator[Finding]:
    import sqlglot
    from sqlglot.errors import ParseError, SqlglotError

    if not expression.strip():
        yield "no expression", "Write a Spark SQL expression, such as quantity * sale_price"
        return
    try:
        tokens = sqlglot.tokenize(expression, dialect="spark")
    except SqlglotError:
        yield "not a Spark SQL expression: a quote or a comment is not closed", "Close it"
        return
    words = ["''" if token.token_type.name == "STRING" else token.text for token in tokens]
    yield from _function_findings(words, known)
    try:
        # The line break before the bracket ends a comment at the end of the expression.
        statements: list[Any] = sqlglot.parse(f"SELECT (\n{expression}\n)", dialect="spark")
    except ParseError as error:
        yield f"not a Spark SQL expression: {_said(error.errors[0])}", "Correct it there"
        return
    except RecursionError:
        yield "nested too deeply", "Derive it in several steps: a derived column may use those before it"
        return
    if not _is_one_value(statements):
        yield "not one expression", "Write exactly one Spark SQL expression"
        return
    value: Any = statements[0].expressions[0]
    yield from _shape_findings(value, {name.lower(): kind for name, kind in types.items()})
    yield from _column_findings(value, columns, known)


def _said(error: Mapping[str, Any]) -> str:
    """What the parser found, without its own class names."""
    said = str(error.get("description"))
    if said.startswith("Required keyword"):
        said = "something is missing"
    near = str(error.get("highlight")).strip()
    return said if near == ")" else f"{said} near {near!r}"


def _is_one_value(statements: list[Any]) -> bool:
    """Whether the brackets around the expression are still around all of it."""
    from sqlglot import exp

    select = statements[0]
    clauses = [name for name, value in select.args.items() if value and name != "expressions"]
    return (
        len(statements) == 1
        and not clauses
        and len(select.expressions) == 1
        and isinstance(select.expressions[0], (exp.Paren, exp.Subquery))
    )


def _shape_findings(value: Any, types: Mapping[str, str]) -> Iterator[Finding]:
    """Constructs that are more, or less, than a value of one row."""
    from sqlglot import exp

    if value.find(exp.Query):
        yield "contains a subquery", "Use a lookup to add columns of another table"
    if value.find(exp.Window):
        yield "contains a window function", _ROW_REMEDY
    if isinstance(value.this, exp.Alias):
        yield "gives the value a name", "Leave the name out: it stands before the expression"
    if value.find(exp.Placeholder, exp.Parameter):
        yield "contains a parameter or a template", "Write the value itself"
    if value.find(exp.Star):
        yield "* is not a value", "Name the column"
    if has_moment(value, types):
        yield "depends on the time at which it runs ('now', 'today', …)", _MOMENT_REMEDY


def _function_findings(words: list[str], known: Collection[str]) -> Iterator[Finding]:
    """Functions by the names they were written with, which a parsed tree no longer has."""
    for position, word in enumerate(words):
        name = word.lower()
        before = words[position - 1].lower() if position else ""
        after = words[position + 1 : position + 3]
        is_call = after[:1] == ["("] and before not in ("like", "ilike", "rlike")
        if not _WORD.fullmatch(word) or (not is_call and (name in known or before == ".")):
            continue
        is_clock = is_call and name == "unix_timestamp" and after[1:] == [")"]
        if is_clock or (name in CHANGING and (is_call or name in BARE)):
            yield f"{name} may give another value in a retry", _STABLE_REMEDY
        elif is_call and name in AGGREGATES:
            yield f"{name} is not a function of one row", _ROW_REMEDY
        elif is_call and name not in ALLOWED and name not in WORDS:
            close = nearest(name, ALLOWED)
            hint = f"Did you mean {close}? " if close else ""
            yield (
                f"{name} is not a function that a derived column may use",
                f"{hint}Use deterministic built-in functions of Spark SQL",
            )


def _column_findings(value: Any, columns: Collection[str], known: Collection[str]) -> Iterator[Finding]:
    from sqlglot import exp

    roots = dict.fromkeys(column.parts[0].name for column in value.find_all(exp.Column))
    for name in roots:
        if name.lower() not in known and name.lower() not in BARE:
            yield f"there is no column {name!r}", suggestion(name, columns)
