"""The words that Spark takes for a time when a date or a timestamp is expected: 'now', 'today', …

It does so with every text that it casts itself, as in `sold_at < 'now'`. Only where all that a word meets is
known to be text does it stay one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

# A time zone may follow. 'epoch' is such a word too, and always the same time.
_MOMENT = re.compile(r"\s*(now|today|tomorrow|yesterday)(?![a-z])\s*\S*\s*", re.IGNORECASE)

_TAKE_TEXT = """
    Like ILike RegexpLike RegexpILike StartsWith EndsWith Contains StrPosition Levenshtein Length RegexpCount
    RegexpSplit MD5 SHA SHA2 Hex PropertyEQ Struct VarMap
"""
"""What takes a text as it is and gives something else."""
_GIVE_TEXT = """
    Upper Lower Initcap Trim Concat ConcatWs DPipe Replace RegexpReplace RegexpExtract Substring Left Right
    Pad Reverse Translate
"""
"""What takes texts and gives one."""
_COMPARE = "EQ NEQ NullSafeEQ NullSafeNEQ EqualNull LT LTE GT GTE In Between"
"""What brings its operands to one type."""
_PASS_ON = "Paren Coalesce Greatest Least Nullif Array If Case"
"""What brings its operands to one type and gives one of them."""
_OPERANDS = ("this", "expression", "expressions", "low", "high")


def has_moment(value: Any, types: Mapping[str, str]) -> bool:
    """Whether a parsed expression has such a word where it may become a time.

    `types` are the types of the columns of which they are known, by their names in lower case.
    """
    from sqlglot import exp

    words = [
        word
        for word in value.find_all(exp.Literal, exp.RawString)
        if (word.is_string or isinstance(word, exp.RawString)) and _MOMENT.fullmatch(word.name)
    ]
    if not words:
        return False
    # A lambda's parameter may have the name of a column.
    hidden = {name.name.lower() for made in value.find_all(exp.Lambda) for name in made.expressions}
    known = {name: kind for name, kind in types.items() if name not in hidden}
    return not all(_stays_text(word, known) for word in words)


@cache
def _classes(names: str) -> tuple[type, ...]:
    from sqlglot import exp

    return tuple(getattr(exp, name) for name in names.split())


def _stays_text(node: Any, types: Mapping[str, str]) -> bool:
    """Whether nothing around a text makes a time of it."""
    from sqlglot import exp

    above = node.parent
    if isinstance(above, (exp.Query, *_classes(_TAKE_TEXT))):
        return True
    if isinstance(above, _classes(_GIVE_TEXT)):
        return _stays_text(above, types)
    if isinstance(above, exp.Cast):
        return _is_text(above, types) and _stays_text(above, types)
    if isinstance(above, exp.If) and isinstance(above.parent, exp.Case):
        return _stays_text_in_case(node, above.parent, types)
    if isinstance(above, _classes(_COMPARE)):
        return all(_is_text(operand, types) for operand in _operands(above))
    if isinstance(above, _classes(_PASS_ON)):
        return _is_text(above, types) and _stays_text(above, types)
    return isinstance(above, (exp.Bracket, exp.ArrayContains)) and _holds_text(above.this, types)


def _stays_text_in_case(node: Any, case: Any, types: Mapping[str, str]) -> bool:
    """The same for a part of a WHEN: what is compared with, or a result."""
    if node.arg_key == "this":
        return case.this is not None and _is_text(case.this, types)
    return _is_text(case, types) and _stays_text(case, types)


def _is_text(node: Any, types: Mapping[str, str]) -> bool:
    """Whether a value is certainly a text, or null."""
    from sqlglot import exp

    if isinstance(node, exp.Column):
        return len(node.parts) == 1 and types.get(node.name.lower()) == "string"
    if isinstance(node, exp.Cast):
        return bool(node.to.is_type(*exp.DataType.TEXT_TYPES))
    if isinstance(node, _classes(_PASS_ON)):
        return all(_is_text(operand, types) for operand in _operands(node))
    if isinstance(node, (exp.Null, exp.RawString, *_classes(_GIVE_TEXT))):
        return True
    return isinstance(node, exp.Literal) and node.is_string


def _holds_text(node: Any, types: Mapping[str, str]) -> bool:
    """Whether a column is known to be looked up in by a text."""
    from sqlglot import exp

    kind = types.get(node.name.lower(), "") if isinstance(node, exp.Column) and len(node.parts) == 1 else ""
    return kind == "array<string>" or kind.startswith("map<string,")


def _operands(node: Any) -> Iterator[Any]:
    """The values that an expression brings to one type."""
    from sqlglot import exp

    if isinstance(node, exp.If):
        yield from (node.args[name] for name in ("true", "false") if node.args.get(name))
    elif isinstance(node, exp.Case):
        yield from (when.args["true"] for when in node.args["ifs"])
        yield from [node.args["default"]] if node.args.get("default") else []
    else:
        for name in _OPERANDS:
            operand = node.args.get(name)
            yield from operand if isinstance(operand, list) else [operand] if operand else []
