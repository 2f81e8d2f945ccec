"""Nothing that a client was told is lost or there twice, whenever its server is killed; soak has 300 kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.kills import check_kills


@pytest.mark.parametrize("kills", [8, pytest.param(300, marks=pytest.mark.soak)])
def test_a_server_that_is_killed_loses_nothing_that_was_acknowledged(kills: int, tmp_path: Path) -> None:
    assert check_kills(tmp_path / "data", kills, seed=kills) > kills
