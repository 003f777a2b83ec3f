"""Families by name: ours, and those that other packages provide through entry points.

Any installed distribution may add some. In its pyproject.toml::

    [project.entry-points."mqtick.oscilloscopes"]
    acme = "mypackage.acme:Acme"                    # a subclass of Dialect

    [project.entry-points."mqtick.simulated_oscilloscopes"]
    acme = "mypackage.acme_front:AcmeFront"         # a subclass of Front
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from mqtick.lab.scope.conversation import InstrumentError

T = TypeVar("T")


class Families(Mapping[str, type[T]]):
    """Subclasses of one class, by name; an entry point is loaded when it is first used.

    Indexing raises KeyError for an unknown name, and InstrumentError, with the remedy, for an entry
    point that cannot be used. Other names are not affected.
    """

    def __init__(
        self, group: str, base: type, own: Sequence[type[T]], needs: Mapping[str, type]
    ) -> None:
        self._group, self._base, self._needs = group, base, needs
        self._own = {str(vars(one)["name"]): one for one in own}

    def _points(self, name: str | None = None) -> list[EntryPoint]:
        every = {(point.name, point.value): point for point in entry_points(group=self._group)}
        return [point for point in every.values() if name in (None, point.name)]

    def __iter__(self) -> Iterator[str]:
        """Yield the names, ours first; none is loaded."""
        yield from self._own
        yield from sorted({point.name for point in self._points()} - set(self._own))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in list(iter(self))

    def __getitem__(self, name: str) -> type[T]:
        if name in self._own:
            return self._own[name]
        points = self._points(name)
        if not points:
            raise KeyError(name)
        if len(points) > 1:
            raise InstrumentError(
                f"Two packages provide a family called {name!r} "
                f"({' and '.join(sorted(point.value for point in points))}), so neither is used; "
                "remove one of them."
            )
        return self._loaded(points[0])

    def _loaded(self, point: EntryPoint) -> type[T]:
        try:
            found = point.load()
            fault = self._fault(point.name, found)
        except (Exception, SystemExit) as trouble:  # another package's module may raise anything
            fault = f"{type(trouble).__name__}: {trouble}"
        if fault:
            raise InstrumentError(
                f"The family {point.name!r} ({point.value}, group {self._group}) cannot be used: "
                f"{fault}. Repair or remove the package that provides it."
            )
        loaded: type[T] = found
        return loaded

    def _fault(self, name: str, found: object) -> str:
        """Return what is missing in a class of another package; "" if nothing is."""
        if not (isinstance(found, type) and issubclass(found, self._base)):
            return f"it is not a subclass of {self._base.__module__}.{self._base.__qualname__}"
        if inspect.isabstract(found):
            return f"it does not define {', '.join(sorted(vars(found)['__abstractmethods__']))}"
        for field, kind in self._needs.items():
            value = getattr(found, field, None)
            if not isinstance(value, kind):
                return f"its {field} is {value!r}, not {kind.__name__}"
        own = getattr(found, "name", None)
        return "" if own == name else f"its name is {own!r}, not that of its entry point"
