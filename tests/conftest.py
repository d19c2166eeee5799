"""Fixtures that tests of several rooms share."""

from __future__ import annotations

import pytest

from fakes.study import Silent
from wattention.study.configure import DEFAULTS, build_run_spec


@pytest.fixture
def spec():
    return build_run_spec(
        [DEFAULTS, {"mechanisms": ["baseline", "flash"], "measure": {"lengths": (256, 512)}}], [], threads=1
    )


@pytest.fixture
def silent():
    return Silent()
