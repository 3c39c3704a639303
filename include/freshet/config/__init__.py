"""The load definition: what a data engineer writes, as typed and checked models."""

from freshet.config.models import Definition, Enrich, Facts, Lookup, Resort, Stream
from freshet.config.problems import DefinitionFileError, Problem
from freshet.config.reading import (
    all_definitions,
    definition_file,
    definition_files,
    find_definition,
    read_definition,
    refused_in_use,
)
from freshet.config.units import UnitError, format_bytes, parse_bytes, parse_option, parse_seconds

__all__ = [
    "Definition",
    "DefinitionFileError",
    "Enrich",
    "Facts",
    "Lookup",
    "Problem",
    "Resort",
    "Stream",
    "UnitError",
    "all_definitions",
    "definition_file",
    "definition_files",
    "find_definition",
    "format_bytes",
    "parse_bytes",
    "parse_option",
    "parse_seconds",
    "read_definition",
    "refused_in_use",
]
