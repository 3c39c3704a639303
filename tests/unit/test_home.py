"""Which folder may be the home of all data."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.errors import FreshetError
from freshet.home import for_people, freshet_home, resolve


@pytest.mark.parametrize("sign", list("*?[]{}\\^|"))
def test_a_home_in_which_files_would_not_be_found_is_refused(
    sign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRESHET_HOME", f"/srv/freshet{sign}1")
    with pytest.raises(
        FreshetError, match=r"^FRESHET_HOME, /srv/freshet.*cannot be used.*Set it to a folder"
    ):
        resolve("stream")
    assert for_people(PermissionError(13, "Permission denied", "/elsewhere")) is None


def test_a_home_of_other_signs_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHET_HOME", "/srv/Daten (neu), 100%=ü:#1")
    assert freshet_home() == Path("/srv/Daten (neu), 100%=ü:#1")
