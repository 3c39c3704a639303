"""The errors Freshet raises for the person who must act.

Every message says what is wrong, where (file, field, value) and what to do. The command line and the
jobs print the message alone and exit with 1; anything that is not a FreshetError is a defect and
keeps its traceback.
"""

import errno

DISK_FULL = (
    "The disk is full. Free some space, or put FRESHET_HOME on another disk, then run the same command again"
)


def disk_is_full(error: BaseException) -> bool:
    """Whether an error, of Python or of Spark, means that there was no space left."""
    return getattr(error, "errno", None) == errno.ENOSPC or "No space left on device" in str(error)


class FreshetError(Exception):
    """Something the user can put right; the message says how."""


class DefinitionError(FreshetError):
    """A load definition that cannot be used."""


class BudgetError(FreshetError):
    """A byte budget too small for what must be held."""


class MasterError(FreshetError):
    """Master data that cannot be read, ranked or published."""


class SnapshotError(FreshetError):
    """A snapshot that is missing, damaged or of another format."""


class LoadStateError(FreshetError):
    """Checkpoint, tables and plans that do not fit each other, or a load held by another driver."""


class BatchError(FreshetError):
    """A micro-batch that cannot be loaded under its plan."""


class ValidationError(FreshetError):
    """Facts that could not be validated (failing expectations are a result, not an error)."""
