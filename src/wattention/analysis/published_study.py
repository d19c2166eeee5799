"""A published study as data: its figures, what ran under its names, its claims, and how to run it again.

One TOML file of ``published/`` is one study (or the user's own file); a figure belongs to one of the measures below, a
claim is a statement about one of them that can be judged. Unknown keys, mechanisms and measures are refused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from wattention.core.errors import UserError, unknown_name
from wattention.core.specs import Spec

MeasureName = Literal["time", "energy", "power", "memory", "flop", "latency", "loss"]
Form = Literal["lowest", "highest", "order", "less", "not_implied"]


class PublishedMechanism(Spec):
    """One mechanism of a study: our name, its name there, and what its code computed where that is something else."""

    name: str = Field(min_length=1)
    published_as: str = Field(min_length=1)
    ran: str = ""


class PublishedFigure(Spec):
    """One published column: a number for each mechanism, in the study's own unit and meaning."""

    measure: MeasureName
    title: str = Field(min_length=3)
    published: str = Field(min_length=1)
    source: str = Field(min_length=8)
    values: dict[str, float]


class Claim(Spec):
    """One statement of a study.

    ``lowest`` / ``highest``: each of ``mechanisms`` lies below / above all others by the measure. ``order``: they come
    first, in this order, and then the rest. ``less``: the first of two lies below the second. ``not_implied``: some
    pair of mechanisms has less of ``measure`` and yet more of ``other``.
    """

    id: str = Field(pattern=r"^[a-z0-9-]+$")
    text: str = Field(min_length=8)
    form: Form
    measure: MeasureName
    other: MeasureName | None = None
    mechanisms: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.other is not None) != (self.form == "not_implied"):
            raise UserError(f"claim {self.id}", got=f"form {self.form}, other {self.other}", wanted="other, and only "
                            "for not_implied")  # fmt: skip
        wanted = {"less": 2, "not_implied": 0}.get(self.form)
        if wanted is not None and len(self.mechanisms) != wanted:
            raise UserError(f"claim {self.id}", got=f"{len(self.mechanisms)} mechanisms", wanted=f"{wanted}")
        if wanted is None and not self.mechanisms:
            raise UserError(f"claim {self.id}", got="no mechanisms", wanted="at least one")
        return self


class Scale(Spec):
    """A size to run the study at: fields of a run, as a configuration file of ``wattention compare`` has them."""

    about: str = Field(min_length=8)
    run: dict[str, Any]


class PublishedStudy(Spec):
    """A study: see the module."""

    schema_version: Literal[1]
    title: str
    citation: str
    code: str
    setup: str
    reference: str
    mechanisms: tuple[PublishedMechanism, ...] = Field(min_length=2)
    figures: tuple[PublishedFigure, ...]
    claims: tuple[Claim, ...]
    scales: dict[str, Scale]

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        names = self.names
        used = [name for claim in self.claims for name in claim.mechanisms]
        used += [name for figure in self.figures for name in figure.values]
        for name in (*used, self.reference):
            if name not in names:
                raise unknown_name(f"mechanism of {self.title}", name, names)
        ids = [claim.id for claim in self.claims]
        if len(set(ids)) < len(ids):
            raise UserError(f"claims of {self.title}", got="an id twice", wanted="ids of their own")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Our names of its mechanisms, in its order."""
        return tuple(mechanism.name for mechanism in self.mechanisms)

    def what_ran(self, name: str) -> str:
        """What the study's code computed under this name; empty where it is what the name says."""
        return next(mechanism.ran for mechanism in self.mechanisms if mechanism.name == name)

    def figure(self, measure: MeasureName) -> PublishedFigure | None:
        """The published figure for a measure, or None."""
        return next((figure for figure in self.figures if figure.measure == measure), None)

    def scale(self, name: str) -> Scale:
        """Return a scale by name.

        Raises:
            UserError: the study has no such scale.
        """
        if name not in self.scales:
            raise unknown_name(f"scale of {self.title}", name, self.scales)
        return self.scales[name]


def _folder() -> Path:
    return Path(str(files("wattention.analysis") / "published"))


def study_names() -> tuple[str, ...]:
    """Names of the built-in studies, sorted, without reading them."""
    return tuple(sorted(path.stem for path in _folder().glob("*.toml")))


def load_study(name: str) -> PublishedStudy:
    """Load a built-in study by name, or the TOML file at a path.

    Raises:
        UserError: an unknown name (with the nearest known ones), or a file that is not a valid study.
    """
    if name.endswith(".toml"):
        return read_study(Path(name))
    if name not in study_names():
        raise unknown_name("study", name, study_names())
    return read_study(_folder() / f"{name}.toml")


def read_study(path: Path) -> PublishedStudy:
    """Read one study file; the first fault is named with its key.

    Raises:
        UserError: it is missing, not TOML, or not a study.
    """
    try:
        data: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError("cannot read the study", got=f"{path}: {error.strerror}", wanted="an existing file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError("the study is not TOML", got=f"{path}: {error}", do="mend the file") from error
    return PublishedStudy(**data)
