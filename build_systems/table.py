"""The tables of a project's modules, typed: `build`'s options by their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from cudnn_bindgen.codegen.bind.naming import check_module_name
from cudnn_bindgen.codegen.bind.sidecar import sidecars
from cudnn_bindgen.codegen.errors import EmitError, GraphFormatError
from cudnn_bindgen.codegen.read.dialects.decode import check
from cudnn_bindgen.commands.chain import check_chain_options
from cudnn_bindgen.commands.family import check_family_options
from cudnn_bindgen.commands.graphs import graph_files, module_of
from cudnn_bindgen.commands.options import ModuleOptions, parse_options

_File = Annotated[str, Meta(min_length=1)]


class Table(msgspec.Struct, rename="kebab", kw_only=True, forbid_unknown_fields=True):
    """A module. Paths are those of files in the project's folder.

    Attributes
    ----------
    name
        With its package: ``mymodel.attn``.
    graph, graphs
        Its graph, the file of a chain, or the graphs of a family.
    """

    name: str
    graph: _File | None = None
    graphs: Annotated[list[_File], Meta(min_length=1)] | None = None
    # From here on as on the command line.
    gpus: list[str] = msgspec.field(name="for", default_factory=list)
    cudnn: list[_File] = []
    only_cudnn: bool = False
    index: int | None = None
    allow_newer: bool = False
    strict: bool = False
    symbol: list[str] = []
    unbounded: bool = False
    torch: bool = False
    torch_namespace: str | None = None
    backward: list[_File] = []
    key: list[str] = []
    chain: bool = False
    header: bool = False

    @property
    def package(self) -> str:
        """What `name` stands in; empty for a module at the top."""
        return self.name.rpartition(".")[0]

    @property
    def module(self) -> str:
        """The last part of `name`."""
        return self.name.rpartition(".")[2]

    def paths(self) -> tuple[Path, ...]:
        """Return the graph, or those of the family."""
        return tuple(map(Path, [self.graph] if self.graph else self.graphs or ()))

    def options(self) -> ModuleOptions:
        """Return what the command line makes of the same options.

        Raises
        ------
        EmitError
            It refuses them.
        """
        words = [f"--family={self.module}"] if self.graphs else []
        for field in msgspec.structs.fields(self)[3:]:
            value, option = getattr(self, field.name), f"--{field.encode_name}"
            if value is True:
                words.append(option)
            elif value is not None and value is not False:
                values = value if isinstance(value, list) else [value]
                words += [f"{option}={one}" for one in values]
        options = parse_options(words)
        check_family_options(options, None)
        check_chain_options(options, self.paths())
        return options

    def files(self) -> list[str]:
        """Return the files of the project that the module is made of, for the sdist."""
        links = graph_files(self.paths(), self.options()) if self.chain else ()
        graphs = [*self.paths(), *links, *map(Path, self.backward)]
        beside = [file for graph in graphs for file in sidecars(graph)]
        devices = [Path(gpu) for word in self.gpus for gpu in word.split(",")]
        found = [*graphs, *beside, *(file for file in devices if file.is_file())]
        return [file.as_posix() for file in dict.fromkeys(found)]

    def beside(self, suffix: str) -> Iterator[str]:
        """Yield what stands beside the module; modules of gradients end in `suffix`."""
        gradients = [module_of(Path(graph), None) for graph in self.backward]
        for name in (self.module, *gradients):
            yield from (f"{name}.pyi", f"{name}.pxd")
            if self.header and name == self.module:
                yield f"{name}.h"
            if self.torch:
                yield f"{name}_torch.py"
        yield from (f"{name}{suffix}" for name in gradients)


def read_tables(tables: object, path: str) -> list[Table]:
    """Return the tables that stand at `path`, all of them checked.

    Raises
    ------
    EmitError
        One is not as it should be; the message begins with its place.
    """
    try:
        found = check(tables, list[Table], path)
    except GraphFormatError as error:
        raise EmitError(f"{error.path}: {error.problem}") from None
    owners: dict[str, str] = {}
    for number, table in enumerate(found):
        place = f"{path}[{number}]"
        try:
            _check(table)
        except EmitError as error:
            raise EmitError(f"{place}{error}") from None
        if owners.setdefault(table.name, place) != place:
            raise EmitError(f"{place}.name: expected another than {owners[table.name]}, got both")
    return found


def _check(table: Table) -> None:
    try:
        for part in table.name.split("."):
            check_module_name(part)
    except EmitError:
        raise EmitError(
            f'.name: expected a dotted name such as "a.b", got "{table.name}"'
        ) from None
    if (table.graph is None) == (table.graphs is None):
        raise EmitError(f": expected graph or graphs, got {'both' if table.graph else 'neither'}")
    try:
        table.options()
        files = table.files()
    except EmitError as error:
        raise EmitError(f": {error}") from None
    for file in files:
        if Path(file).is_absolute() or ".." in Path(file).parts:
            raise EmitError(f': expected files in the project\'s folder, got "{file}"')
