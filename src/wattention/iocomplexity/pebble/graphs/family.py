"""A graph family: options with defaults and meaning, and the function that builds one member.

A spec is ``NAME`` or ``NAME:option=value,...``; values are integers or words, and every unknown name or value answers
with what would have been accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wattention.core.catalog import Catalog
from wattention.core.errors import UserError, unknown_name
from wattention.iocomplexity.pebble.graph import Graph

Value = int | str | bool


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a family: its default (which fixes its type), what it means, and the words it accepts."""

    default: Value
    what: str
    words: tuple[str, ...] = ()

    def parse(self, key: str, text: str) -> Value:
        """Return the value of ``key=text``; UserError if it is not of the option's kind."""
        if isinstance(self.default, bool):
            if text.lower() not in {"true", "false", "yes", "no", "1", "0"}:
                raise UserError(f"bad value of {key}", got=text, wanted="true or false")
            return text.lower() in {"true", "yes", "1"}
        if isinstance(self.default, int):
            if not text.isascii() or not text.isdigit():
                raise UserError(f"bad value of {key}", got=text, wanted="a whole number of at least 0")
            return int(text)
        if self.words and text not in self.words:
            raise unknown_name(f"value of {key}", text, self.words)
        return text


@dataclass(frozen=True, kw_only=True)
class Family:
    """One graph family: what it computes, its options, and its builder."""

    what: str
    options: Mapping[str, Option]
    build: Callable[..., Graph]


FAMILIES = Catalog(
    kind="graph",
    package="wattention.iocomplexity.pebble.graphs",
    export="FAMILY",
    record=Family,
    not_plugins=frozenset({"family", "sketch"}),
)

SUM = Option(
    default="chain",
    what="how sums are made: a chain of nodes, a balanced tree of nodes, or one accumulator word",
    words=("chain", "tree", "word"),
)


def parse(spec: str, **defaults: Value) -> Graph:
    """Build the graph of a spec.

    Args:
        spec: ``NAME[:option=value,...]``, e.g. ``matmul:m=2,k=2,n=3``; a hyphen in the name is an underscore.
        defaults: options to use where the spec is silent and the family knows them (``sum="word"`` for FMA rules).

    Raises:
        UserError: an unknown family, option or value, or a size the family does not accept.
    """
    name, _, rest = spec.partition(":")
    family = FAMILIES.load(name.replace("-", "_"))
    given = {key: value for key, value in defaults.items() if key in family.options}
    for part in filter(None, rest.split(",")):
        key, equals, text = part.partition("=")
        if not equals:
            raise UserError(f"bad option of graph {name}", got=part, wanted="option=value",
                            do=f"{name} has {_listed(family)}")  # fmt: skip
        if key not in family.options:
            raise unknown_name(f"option of graph {name}", key, family.options)
        given[key] = family.options[key].parse(key, text)
    return family.build(**{key: given.get(key, option.default) for key, option in family.options.items()})


def at_least(smallest: int, **sizes: int) -> None:
    """Refuse sizes below ``smallest``, naming the first."""
    for key, size in sizes.items():
        if size < smallest:
            raise UserError(f"{key} is too small", got=size, wanted=f"at least {smallest}")


def _listed(family: Family) -> str:
    return ", ".join(f"{key}={option.default}" for key, option in family.options.items())
