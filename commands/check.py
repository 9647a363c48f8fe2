"""`emit --check` of modules: emits them again, with the options that they state, and compares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from cudnn_bindgen.codegen.bind.kept_plans import OtherGraphError
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.output import find_differences, is_foreign
from cudnn_bindgen.codegen.read.chain import link_files, read_chain
from cudnn_bindgen.codegen.read.source import MAX_BYTES, read_file
from cudnn_bindgen.codegen.render.header import read_module
from cudnn_bindgen.codegen.text import printable
from cudnn_bindgen.commands.graphs import Planned, module_of
from cudnn_bindgen.commands.modules import render_module
from cudnn_bindgen.commands.options import ModuleOptions, parse_options
from cudnn_bindgen.module_data import ModuleData


def is_module(path: Path) -> bool:
    """Whether a GRAPH is a module, or a folder of modules."""
    return path.suffix == ".pyx" or path.is_dir()


def check_modules(paths: Sequence[Path]) -> list[str]:
    """Return what is not up to date about the modules among `paths`: diffs, or why there is none.

    Their graphs are files among `paths`, in folders among them, or beside the module.

    Raises
    ------
    EmitError
        A module's graph is not there, or a file is no module.
    """
    modules = [path for path in paths if path.suffix == ".pyx"]
    for folder in filter(Path.is_dir, paths):
        modules += (path for path in sorted(folder.glob("*.pyx")) if not is_foreign(path))
    return [line for module in dict.fromkeys(modules) for line in _check(module, paths)]


def _check(module: Path, paths: Sequence[Path]) -> list[str]:
    options, data = _read(module)
    own = [data.chain.face] if data.chain else data.graphs
    graphs = {graph.source: _find(graph.source, module, paths) for graph in own}
    backward = [_find(graph.name, module, paths) for graph in options.torch.backward]
    kept: Planned = {}
    if options.targets.gpus:
        parts = [*data.graphs]
        for path in backward:
            gradient = module.with_name(f"{module_of(path, None)}.pyx")
            parts += _read(gradient)[1].graphs
        if data.chain:
            [path] = graphs.values()
            made = {link.name: part for link, part in zip(data.chain.links, parts, strict=True)}
            said = read_chain(path)
            pairs = zip(said.link, link_files(path, said), strict=True)
            kept = {file: made[link.name] for link, file in pairs if link.name in made}
        else:
            kept = dict(zip([*graphs.values(), *backward], parts, strict=True))
    options = replace(options, torch=replace(options.torch, backward=tuple(backward)))
    try:
        files, _ = render_module([*graphs.values()], module.stem, options, kept)
    except OtherGraphError as error:
        return [f"{printable(str(module))}: {error}\n"]
    return find_differences(module.parent, files)


def _read(module: Path) -> tuple[ModuleOptions, ModuleData]:
    try:
        words, data = read_module(read_file(module, MAX_BYTES).decode())
        family = [f"--family={module.stem}"] if data.names else []
        return parse_options([*words, *family]), data
    except (EmitError, UnicodeDecodeError) as error:
        raise EmitError(f"{module}: {error}") from None


def _find(name: str, module: Path, paths: Sequence[Path]) -> Path:
    """Return the graph file of this name that is meant for a module."""
    found = _unlike(path for path in paths if path.name == name and path.is_file())
    if not found:
        folders = [*filter(Path.is_dir, paths), module.parent]
        found = _unlike(path for path in (folder / name for folder in folders) if path.is_file())
    if len(found) == 1:
        return found[0]
    got = f"{found[0]} and {found[1]}" if found else "none"
    raise EmitError(
        f"{module}: expected its graph {name} beside it, or as a GRAPH or in a folder that is "
        f"given, got {got}"
    )


def _unlike(paths: Iterable[Path]) -> list[Path]:
    return [*{path.resolve(): path for path in paths}.values()]
