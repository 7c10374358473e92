"""How boundlab is imported: late, and without looking for garbage."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from boundlab.compat.collector import without_collector

LATE = ("plot",)
"""Public packages that are imported when they are asked for: they need an extra."""
FUNCTIONS = ("capture", "verify")
"""Public functions that are called like the packages that they lie in."""


class Package(ModuleType):
    """A package with the names of its module ``public``, which is imported when the first name is
    asked for that is not there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name in LATE:
            return import_module(f"{self.__name__}.{name}")
        with without_collector():
            public = import_module(f"{self.__name__}.public")
        found = vars(self)
        found.update({key: getattr(public, key) for key in public.__all__})
        found["__all__"] = public.__all__
        if name not in found:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return found[name]

    def __setattr__(self, name: str, value: object) -> None:
        if name in FUNCTIONS and isinstance(value, ModuleType):
            return  # a package was imported: the function of its name stays what is public
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})
