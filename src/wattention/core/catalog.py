"""The folder is the registry: every file of a plugin folder exports one frozen record that tells all about the thing.

Names are file names, known without importing anything; a file is imported when it is asked for. A user's own file, or
an entry point of an installed package, is treated like a file of the folder.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from wattention.core.errors import UserError, unknown_name

Record = TypeVar("Record")


@dataclass(frozen=True, kw_only=True)
class Catalog(Generic[Record]):
    """The plugins of one folder.

    Args:
        kind: what one entry is called in messages, e.g. ``"mechanism"``.
        package: the folder as a package name, e.g. ``"wattention.mechanisms"``.
        export: the name of the record each file exports, e.g. ``"MECHANISM"``.
        record: the class of that record.
        not_plugins: files of the folder that are not plugins, e.g. ``{"base", "reference"}``.
    """

    kind: str
    package: str
    export: str
    record: type[Record]
    not_plugins: frozenset[str] = frozenset()

    def names(self) -> tuple[str, ...]:
        """Names of all built-in entries and entry points, sorted, without importing any of them."""
        return tuple(sorted(self._files() | set(self._entry_points())))

    def load(self, name: str) -> Record:
        """Import one entry: a name of the folder, an entry point, or the path of a Python file.

        A name of the folder means that file: no installed package takes its place.
        """
        if name.endswith(".py"):
            return self._export_of(_import_file(Path(name), self.kind), name)
        if name in self._files():
            return self._export_of(importlib.import_module(f"{self.package}.{name}"), name)
        entry_points = self._entry_points()  # reads a file of every installed package, so it is asked last
        if name not in entry_points:
            raise unknown_name(self.kind, name, self.names())
        return self._checked(entry_points[name].load(), name)

    def _files(self) -> frozenset[str]:
        folder = importlib.import_module(self.package).__path__
        files = {m.name for m in pkgutil.iter_modules(folder) if not m.ispkg and not m.name.startswith("_")}
        return frozenset(files) - self.not_plugins

    def _entry_points(self) -> dict[str, Any]:
        return {e.name: e for e in importlib.metadata.entry_points(group=self.package)}

    def _export_of(self, module: ModuleType, name: str) -> Record:
        if not hasattr(module, self.export):
            raise UserError(
                f"{name} is not a {self.kind}",
                got=f"a module without {self.export}",
                wanted=f"{self.export} = {self.record.__name__}(...)",
                do=f"export one {self.record.__name__} record named {self.export} from the file",
            )
        return self._checked(getattr(module, self.export), name)

    def _checked(self, record: object, name: str) -> Record:
        if not isinstance(record, self.record):
            raise UserError(f"{name} is not a {self.kind}", got=type(record).__name__, wanted=self.record.__name__)
        return record


def _import_file(path: Path, kind: str) -> ModuleType:
    """Import a user's file under a name of its own, so that two files called mine.py do not collide."""
    if not path.is_file():
        raise UserError(f"cannot read the {kind} file", got=path, wanted="an existing Python file")
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    name = f"wattention_user_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UserError(
            f"the {kind} file {path} fails on import", got=f"{type(error).__name__}: {error}", do="mend the file"
        ) from error
    return module
