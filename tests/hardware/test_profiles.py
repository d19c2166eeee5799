"""Hardware profiles: every number has a unit and a source, hierarchies grow outwards, faults are named."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from wattention.core.errors import UserError
from wattention.hardware.catalog import load_profile, profile_names
from wattention.hardware.profile import read_profile

GOOD = """
schema_version = 1
title = "Test device"
kind = "gpu"
vendor = "Nobody"
[[levels]]
name = "shared"
holder = "block"
capacity = { value = 1024, unit = "byte", source = "a data sheet" }
[[levels]]
name = "main"
holder = "device"
capacity = { value = 4096, unit = "byte", source = "a data sheet" }
[peak]
float32 = { value = 1e12, unit = "flop/s", source = "a data sheet" }
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "device.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_is_valid_and_sourced(name: str) -> None:
    profile = load_profile(name)
    assert profile.main_memory.capacity_bytes > profile.fast_levels[-1].capacity_bytes
    numbers = [level.capacity for level in profile.levels] + list(profile.peak.values())
    assert all(number.source for number in numbers)


def test_the_devices_the_project_promises_are_there() -> None:
    wanted = {"rtx-4090", "rtx-3090", "a100-40", "a100-80", "h100-sxm", "h100-pcie", "h200", "b200", "l4", "t4"}
    wanted |= {"a10g", "mi300x", "m2-max", "tpu-v5e", "cpu-desktop", "cpu-server"}
    assert wanted <= set(profile_names())


@pytest.mark.parametrize(
    ("name", "capacity_bytes"),
    [("h100-sxm", 232448), ("rtx-4090", 101376), ("t4", 65536), ("a100-40", 166912), ("mi300x", 65536)],
)
def test_shared_memory_of_one_block(name: str, capacity_bytes: int) -> None:
    assert load_profile(name).level("shared").capacity_bytes == capacity_bytes
    assert load_profile(name).level("Shared").words(2) == capacity_bytes // 2


def test_a_figure_from_memory_says_so() -> None:
    registers = load_profile("cpu-server").level("registers")
    assert registers.capacity.recalled
    assert not load_profile("tpu-v5e").main_memory.capacity.recalled


def test_unknown_names_answer_with_near_ones() -> None:
    with pytest.raises(UserError, match="did you mean h100-sxm"):
        load_profile("h100-smx")
    with pytest.raises(UserError, match=r"unknown memory level of NVIDIA H100.*\n.*\n.*registers, shared"):
        load_profile("h100-sxm").level("smem")


def test_a_users_own_file_is_a_profile(tmp_path: Path) -> None:
    profile = load_profile(str(write(tmp_path, GOOD)))
    assert profile.title == "Test device"
    assert profile.peak["float32"].value == 1e12
    with pytest.raises(ValidationError):
        profile.title = "another"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "gpu"', 'kind = "gpu"\nclock = 3', r"clock: Extra inputs are not permitted"),
        (
            'unit = "byte", source = "a data sheet" }\n[[levels]]',
            'unit = "byte" }\n[[levels]]',
            r"source: Field required",
        ),
        ("value = 4096", "value = 512", r"levels must grow from the inside out: shared is not smaller than main"),
        ("value = 1024", "value = -1", r"greater than 0"),
        ('value = 1024, unit = "byte"', 'value = 1024, unit = "W"', r"capacity of shared is in W, wanted byte"),
        ("schema_version = 1", "schema_version = 2", r"schema_version"),
        ('name = "main"', 'name = "shared"', r"levels with one name"),
        ("[peak]", "[peak", r"is not TOML"),
    ],
)
def test_faults_are_refused_and_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(UserError, match=message):
        read_profile(write(tmp_path, GOOD.replace(old, new)))


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the hardware profile"):
        read_profile(tmp_path / "none.toml")
