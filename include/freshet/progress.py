"""How long work reports where it is, so that any front end can draw it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int | None], None]
"""Called with the step, how much of it is done, and its total (None: not known)."""


def silent(step: str, done: int, total: int | None) -> None:
    """The progress nobody watches."""
