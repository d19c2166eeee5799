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

FIRST_LEVEL = GOOD[GOOD.index("[[levels]]") : GOOD.rindex("[[levels]]")]
RATE = 'bandwidth = {{ value = {}, unit = "byte/s", source = "a data sheet" }}'
MIDDLE = """[[levels]]
name = "L2"
holder = "device"
capacity = { value = 2048, unit = "byte", source = "a data sheet" }
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "device.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_is_valid_and_sourced(name: str) -> None:
    profile = load_profile(name)
    assert profile.main_memory.capacity_bytes > profile.fast_levels[-1].capacity_bytes
    assert all(number.source for _, number in profile.numbers())
    assert len(profile.numbers()) >= 2 * len(profile.levels)


@pytest.mark.parametrize("name", profile_names())
def test_published_energies_are_of_a_plausible_size(name: str) -> None:
    """Less than a multiplier alone, or more than a whole board spends, is a slip of a unit."""
    profile = load_profile(name)
    assert all(0.1e-12 < cost.value < 200e-12 for cost in profile.flop_energy.values())
    assert all(0.5e-12 < level.energy.value < 300e-12 for level in profile.levels if level.energy)
    if profile.power_limit:
        for dtype, cost in profile.flop_energy.items():
            at_peak_w = cost.value * profile.peak[dtype].value
            # a board slows down where its peak would need more than its limit (an L4 in float32, an H100 PCIe)
            assert at_peak_w <= 3 * profile.power_limit.value, f"{dtype} at its peak would need {at_peak_w:.0f} W"


@pytest.mark.parametrize("name", profile_names())
def test_no_figure_waits_for_its_source(name: str) -> None:
    assert [place for place, number in load_profile(name).numbers() if number.recalled] == []


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


def test_a_figure_from_memory_says_so(tmp_path: Path) -> None:
    profile = load_profile(str(write(tmp_path, GOOD.replace("a data sheet", "a data sheet; recalled, not checked", 1))))
    assert profile.level("shared").capacity.recalled
    assert not profile.main_memory.capacity.recalled


def test_unknown_names_answer_with_near_ones() -> None:
    with pytest.raises(UserError, match="did you mean h100-sxm"):
        load_profile("h100-smx")
    with pytest.raises(UserError, match=r"unknown memory level of NVIDIA H100.*\n.*\n.*registers, shared"):
        load_profile("h100-sxm").level("smem")


def test_a_level_a_profile_lacks_says_how_to_supply_it() -> None:
    with pytest.raises(UserError) as caught:
        load_profile("rtx-4090").level("L3")
    assert caught.value.wanted == "L2, main, registers, shared"
    assert "to supply a level, copy the profile to a file of your own and add [[levels]] with name" in str(caught.value)


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
        (
            FIRST_LEVEL,
            "",
            r"a fast level or the main memory is missing, there is only main: add \[\[levels\]\] with name",
        ),
        ("[peak]", "idle_power = 30\n[peak]", r"idle_power"),
        (
            'value = 1024, unit = "byte"',
            'value = 1024, low = 2048, unit = "byte"',
            r"1024 lies outside of its own range",
        ),
    ],
)
def test_faults_are_refused_and_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(UserError, match=message):
        read_profile(write(tmp_path, GOOD.replace(old, new)))


def test_bandwidth_must_fall_also_across_a_level_whose_rate_is_unknown(tmp_path: Path) -> None:
    first, last = GOOD.index("[[levels]]"), GOOD.rindex("[[levels]]")
    head, main = (
        GOOD[:first] + FIRST_LEVEL + RATE.format(5) + "\n",
        GOOD[last:].replace("[peak]", RATE.format(9) + "\n[peak]"),
    )
    with pytest.raises(UserError, match="bandwidth must fall from the inside out: shared is slower than main"):
        read_profile(write(tmp_path, head + MIDDLE + main))
    read_profile(write(tmp_path, head + MIDDLE + main.replace("value = 9,", "value = 5,")))


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the hardware profile"):
        read_profile(tmp_path / "none.toml")
