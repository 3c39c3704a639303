"""Reading load definitions from their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from freshet.config import checks
from freshet.config.models import Definition, Enrich, Facts, Lookup, Resort, Stream
from freshet.config.names import suggestion
from freshet.config.problems import DefinitionFileError, Field, Problem
from freshet.config.yamlfile import Document, read_yaml
from freshet.errors import DefinitionError
from freshet.home import loads_folder

SectionT = TypeVar("SectionT", bound=BaseModel)

_WORDS = {
    "Input should": "it should",
    "dictionary": "mapping",
    "Dictionary": "it",
    "tuple": "list",
    "Tuple": "it",
}
"""Pydantic's words for what a YAML file has."""

_MODELS: Mapping[str, type[BaseModel]] = {
    "stream": Stream,
    "lookups": Lookup,
    "facts": Facts,
    "enrich": Enrich,
    "resort": Resort,
}


def read_definition(path: Path | str) -> Definition:
    """The definition in a YAML file; everything that is wrong with it is told at once."""
    path = Path(path).absolute()
    document = read_yaml(path)
    raw = document.value
    if not isinstance(raw, dict):
        what = "empty" if raw is None else "not a mapping of fields"
        raise DefinitionFileError(
            path, [Problem((), f"the file is {what}", "Describe a load in it, beginning with load: NAME")]
        )
    definition = None
    try:
        definition = Definition.model_validate(raw)
        problems = checks.problems(checks.Sections.of(definition))
    except ValidationError as error:
        problems = [_problem(detail) for detail in error.errors()] + checks.problems(_readable_sections(raw))
    problems = document.problems + [_with_line(problem, document) for problem in problems]
    if definition is None or problems:
        raise DefinitionFileError(path, sorted(problems, key=lambda p: p.line or 0), load=_load_name(raw))
    return definition


def find_definition(load: str) -> Definition:
    """The definition of a load, whatever is wrong with the others."""
    definitions, refused = _read_folder()
    for error in refused:
        if error.load is not None and error.load.lower() == load.lower():
            raise error
    for definition in definitions:
        if definition.load == load:
            return definition
    known = suggestion(load, sorted(definition.load for definition in definitions))
    broken = "".join(f"\n{error}" for error in refused)
    raise DefinitionError(f"There is no load {load!r} in {loads_folder()}. {known}.{broken}")


def refused_in_use(definition: Definition, problem: Problem) -> DefinitionError:
    """The error for what only shows when a definition is used; it names the file, if that still says so."""
    path = definition_file(definition)
    if path is None:
        return DefinitionError(f"The definition of load {definition.load!r} is not usable: {problem}")
    return DefinitionFileError(path, [_with_line(problem, read_yaml(path))], load=definition.load)


def definition_file(definition: Definition) -> Path | None:
    """The file of the loads folder that holds just this definition, if there is one."""
    for path in definition_files() if loads_folder().is_dir() else ():
        try:
            if read_definition(path) == definition:
                return path
        except DefinitionError:
            continue
    return None


def all_definitions() -> tuple[list[Definition], list[DefinitionError]]:
    """Every usable definition of the loads folder, and what is wrong with each of the other files."""
    try:
        definitions, refused = _read_folder()
    except DefinitionError as error:
        return [], [error]
    return definitions, list(refused)


def definition_files() -> list[Path]:
    """The files of the loads folder that should hold a definition."""
    folder = loads_folder()
    if not folder.is_dir():
        raise DefinitionError(
            f"The folder of the load definitions, {folder}, "
            f"{'is no folder' if folder.exists() else 'does not exist'}. Create it, or set FRESHET_LOADS."
        )
    return sorted(
        path for path in folder.iterdir() if path.suffix in (".yaml", ".yml") and path.name[0] != "."
    )


def _read_folder() -> tuple[list[Definition], list[DefinitionFileError]]:
    read: dict[Path, Definition] = {}
    refused = []
    for path in definition_files():
        try:
            read[path] = read_definition(path)
        except DefinitionFileError as error:
            refused.append(error)
    clashing = _clashes(read)
    return [read[path] for path in read if path not in clashing], refused + list(clashing.values())


def _clashes(read: Mapping[Path, Definition]) -> dict[Path, DefinitionFileError]:
    """Files that define the same load. Nobody can say which is meant, so none is used.

    Case does not tell loads apart: their folders may lie on a file system that ignores it.
    """
    by_name: dict[str, list[Path]] = {}
    for path, definition in read.items():
        by_name.setdefault(definition.load.lower(), []).append(path)
    clashes = {}
    for paths in by_name.values():
        for path in paths if len(paths) > 1 else ():
            others = ", ".join(other.name for other in paths if other != path)
            load = read[path].load
            problem = Problem(
                ("load",), f"{others} defines this load too", "Rename or remove one of them", value=load
            )
            clashes[path] = DefinitionFileError(path, [problem], load=load)
    return clashes


def _load_name(raw: Mapping[str, Any]) -> str | None:
    return raw["load"] if isinstance(raw.get("load"), str) else None


def _readable_sections(raw: Mapping[str, Any]) -> checks.Sections:
    """The sections that can be read on their own, of a definition that cannot be read as a whole."""
    lookups = raw.get("lookups")
    derive = raw.get("derive", {})
    expectations = raw.get("expectations")
    return checks.Sections(
        stream=_readable(Stream, raw.get("stream")),
        lookups=[_readable(Lookup, lookup) for lookup in lookups] if isinstance(lookups, list) else None,
        derive=derive if _is_text_mapping(derive) else None,
        facts=_readable(Facts, raw.get("facts")),
        expectations=expectations if isinstance(expectations, list) else [],
    )


def _readable(model: type[SectionT], value: Any) -> SectionT | None:
    try:
        return model.model_validate(value)
    except ValidationError:
        return None


def _is_text_mapping(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for pair in value.items() for text in pair)


def _with_line(problem: Problem, document: Document) -> Problem:
    return replace(problem, line=document.line(problem.field))


def _problem(detail: ErrorDetails) -> Problem:
    """A finding of pydantic's in our words."""
    place = detail["loc"]
    field = tuple(part for part in place if part != "[key]")
    value = detail["input"]
    kind = detail["type"]
    if kind == "freshet":
        return Problem(field, detail["ctx"]["what"], detail["ctx"]["remedy"], value=value)
    if kind == "extra_forbidden":
        return Problem(field, "unknown field", suggestion(str(field[-1]), _known_fields(field)), value=value)
    expected = _expected(field)
    if kind == "missing":
        return Problem(field, "missing", f"Write {field[-1]}: {expected}")
    what = detail["msg"].replace("'", "")
    for pydantics, ours in _WORDS.items():
        what = what.replace(pydantics, ours)
    return Problem(field, what, f"Write {expected}", value=value)


def _model(field: Field) -> type[BaseModel]:
    """The model whose field this is."""
    inside = len(field) > (2 if field[0] == "lookups" else 1)
    return _MODELS.get(str(field[0]), Definition) if inside else Definition


def _known_fields(field: Field) -> Iterable[str]:
    return _model(field).model_fields


def _expected(field: Field) -> str:
    """What the field, or the field this is a part of, should hold."""
    model = _model(field)
    names = [part for part in field if isinstance(part, str) and part in model.model_fields]
    described = model.model_fields[names[-1]].description if names else None
    return described or f"a {model.__name__.lower()} as a mapping of fields"
