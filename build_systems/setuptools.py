"""setuptools: ``[[tool.cudnn-bindgen.modules]]`` of a pyproject.toml → modules, by `build_ext`.

setuptools calls `finalize` for every project in an environment that has this package, so that it
must cost nothing where there is no such table. Nothing is read of a graph, planned or emitted until
`build_ext` runs: `egg_info` and `sdist` only learn which files there are.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from setuptools import Distribution, Extension

if TYPE_CHECKING:
    from cudnn_bindgen.build_systems.table import Table
    from cudnn_bindgen.commands.modules import Wanted

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FILE = Path("pyproject.toml")  # setuptools works in its folder
_TABLE = "tool.cudnn-bindgen.modules"

Result = TypeVar("Result")


class GraphExtension(Extension):  # type: ignore[misc]
    """A module that is described by a table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        super().__init__(table.name, sources=table.files())


def modules(*tables: Mapping[str, object]) -> list[Extension]:
    """Return what ``setup(ext_modules=...)`` of a setup.py takes, of tables as in pyproject.toml.

    Examples
    --------
    ``modules({"name": "mymodel.attn", "graph": "graphs/attn.json", "for": ["h100", "b200"]})``
    """
    return _say_in_a_line(lambda: _extensions([*tables], "modules"))


def finalize(distribution: Distribution) -> None:
    """Add the modules of the table to a project; setuptools calls it by its entry point."""
    found = [*(distribution.ext_modules or ())]
    tables = _read_tables()
    if tables is not None:
        found += _say_in_a_line(lambda: _extensions(tables, f"{_FILE}: {_TABLE}"))
    if any(isinstance(one, GraphExtension) for one in found):
        distribution.ext_modules = found
        find = distribution.get_command_class

        def get_command_class(command: str) -> Any:
            # build_ext is Cython's or a project's own, perhaps.
            return _build_ext(find(command)) if command == "build_ext" else find(command)

        # Not in cmdclass, which [tool.setuptools] may replace: it is read after this.
        distribution.get_command_class = get_command_class


def _read_tables() -> object:
    try:
        text = _FILE.read_text("utf-8")
        if "cudnn-bindgen" not in text:  # reading TOML takes longer
            return None
        return tomllib.loads(text).get("tool", {}).get("cudnn-bindgen", {}).get("modules")
    except (OSError, ValueError, AttributeError):  # setuptools says it, if it is wrong
        return None


def _extensions(tables: object, path: str) -> list[Extension]:
    from cudnn_bindgen.build_systems.table import read_tables

    return [*map(GraphExtension, read_tables(tables, path))]


def _say_in_a_line(call: Callable[[], Result]) -> Result:
    """Call a function that needs what only the extra `build` brings."""
    try:
        from cudnn_bindgen.commands.errors import failures_in_a_line
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"error: {_FILE}: {_TABLE}: {error.name} is not installed: "
            'requires = ["setuptools", "cudnn-bindgen[build]"] of [build-system] brings it'
        ) from None
    with failures_in_a_line():
        return call()


@cache
def _build_ext(base: Any) -> Any:
    """Return `base`, a command that builds extension modules, made to build those of graphs."""

    class BuildExtensions(base):  # type: ignore[misc]
        extensions: list[Extension]

        def run(self) -> None:
            everything = self.extensions
            tables = [*self._tables()]
            if tables:
                _say_in_a_line(lambda: self._build(tables))
            self.extensions = [one for one in everything if not isinstance(one, GraphExtension)]
            super().run()
            self.extensions = everything

        def get_outputs(self) -> list[str]:
            beside = self._beside()
            return sorted({*super().get_outputs(), *(file for file, _ in beside)})

        def get_output_mapping(self) -> dict[str, str]:
            mapping: dict[str, str] = super().get_output_mapping()
            return mapping | dict(self._beside()) if self.inplace else mapping

        def _build(self, tables: list[Table]) -> None:
            from cudnn_bindgen.commands.errors import fail
            from cudnn_bindgen.commands.modules import build_modules

            jobs = self.parallel if type(self.parallel) is int else None
            wanted = [*map(self._wanted, tables)]
            modules, failed = build_modules(wanted, jobs, force=bool(self.force))
            if failed:
                fail(f"{failed} of {modules} modules not compiled")

        def _wanted(self, table: Table) -> Wanted:
            from cudnn_bindgen.commands.modules import Wanted

            # In place at once, not by a copy: what is up to date there need not be built.
            folder = self._in_place(table) if self.inplace else self._built(table)
            text = Path(self.build_temp, "cudnn-bindgen", *table.package.split("."))
            return Wanted(table.paths(), table.module, folder, table.options(), text)

        def _tables(self) -> Iterator[Table]:
            yield from (one.table for one in self.extensions if isinstance(one, GraphExtension))

        def _beside(self) -> Iterator[tuple[str, str]]:
            """Yield what stands beside modules: in the build folder, and in place."""
            for table in self._tables():
                for name in table.beside(str(sysconfig.get_config_var("EXT_SUFFIX"))):
                    yield str(self._built(table) / name), str(self._in_place(table) / name)

        def _built(self, table: Table) -> Path:
            return Path(self.build_lib, *table.package.split("."))

        def _in_place(self, table: Table) -> Path:
            return Path(self.get_finalized_command("build_py").get_package_dir(table.package))

    BuildExtensions.__name__ = "build_ext"
    return BuildExtensions
