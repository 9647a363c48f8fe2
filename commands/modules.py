"""Graph files → modules on disk: what `build` does, and what build systems have done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudnn_bindgen.codegen.output import is_foreign, write_files
from cudnn_bindgen.codegen.render.files import check_apart, check_free
from cudnn_bindgen.commands.chain import render_links
from cudnn_bindgen.commands.family import render_members
from cudnn_bindgen.commands.graphs import (
    NOT_PLANNED,
    Planned,
    graph_files,
    named,
    plan_files,
    refuse_to_replace,
    render_all,
)
from cudnn_bindgen.commands.options import ModuleOptions
from cudnn_bindgen.commands.outcome import Made, tell


@dataclass(frozen=True, slots=True)
class Wanted:
    """A module to build.

    Attributes
    ----------
    graphs
        Its graph file, those of a family, or the file of a chain.
    module
        Its name in its folder.
    directory
        Where it lands, and what belongs beside it: stub, declarations, operators of PyTorch.
    options
        What decides its text.
    sources
        Folder for the text that is compiled; None: `directory`.
    """

    graphs: tuple[Path, ...]
    module: str
    directory: Path
    options: ModuleOptions
    sources: Path | None = None


def build_modules(
    wanted: Sequence[Wanted], jobs: int | None = None, *, force: bool, quiet: bool = False
) -> tuple[int, int]:
    """Emit modules, compile those that are not up to date; return how many, and how many failed.

    `force` replaces files that are not cudnn-bindgen's. What the compiler says is printed, and
    what was made unless `quiet`.
    """
    # Before planning, which takes seconds.
    _check_apart(wanted, [[one.module] for one in wanted])
    planned = _plan(wanted, jobs)
    rendered = [
        render_module(one.graphs, one.module, one.options, planned[one.options.planning])
        for one in wanted
    ]
    emitted = [files for files, _ in rendered]
    _check_apart(wanted, emitted)
    check_free({str(one.graphs[0]): files for one, files in zip(wanted, emitted, strict=True)})
    from cudnn_bindgen.codegen.compile import compile_all, extension_path, foreign_modules

    written: list[tuple[Path, dict[str, str]]] = []
    modules: dict[Path, Path] = {}
    for one, files in zip(wanted, emitted, strict=True):
        sources = one.sources or one.directory
        written.append((sources, files))
        if sources != one.directory:
            beside = {name: text for name, text in files.items() if not name.endswith(".pyx")}
            written.append((one.directory, beside))
        modules |= {sources / name: one.directory for name in files if name.endswith(".pyx")}
    if not force:
        paths = (folder / name for folder, files in written for name in sorted(files))
        refuse_to_replace([*filter(is_foreign, paths), *foreign_modules(modules)])
    for folder, files in written:
        write_files(folder, files)
    compiled, failed = compile_all(modules, jobs)
    for one, (_, several) in zip(wanted, rendered, strict=True):
        for made in () if quiet else several:
            source = (one.sources or one.directory) / f"{made.module}.pyx"
            how = "compiled" if source in compiled else "up to date:"
            if source not in failed:
                path = extension_path(one.directory, made.module)
                tell(how, [path], made, one.options.reading.index)
    return len(modules), len(failed)


def render_module(
    graphs: Sequence[Path], module: str, options: ModuleOptions, planned: Planned = NOT_PLANNED
) -> tuple[dict[str, str], list[Made]]:
    """Read the graph of a module, or those of a family or chain, and render its files."""
    if options.is_chain:
        return render_links(graphs[0], module, options, planned)
    if options.family.name is not None:
        return render_members(graphs, module, options, planned)
    bound = named(graphs[0], module, options, planned)
    return render_all(graphs[0], bound, options, planned)


def _plan(wanted: Sequence[Wanted], jobs: int | None) -> dict[object, Planned]:
    """Make the plans of all modules, those with the same GPUs at once."""
    graphs: dict[object, dict[Path, ModuleOptions]] = {}
    for one in wanted:
        files = graph_files(one.graphs, one.options)
        graphs.setdefault(one.options.planning, {}).update(dict.fromkeys(files, one.options))
    return {
        planning: plan_files([*group], next(iter(group.values())), jobs)
        for planning, group in graphs.items()
    }


def _check_apart(wanted: Sequence[Wanted], names: Sequence[Iterable[str]]) -> None:
    for folder in {one.directory: None for one in wanted}:
        check_apart(
            (str(one.graphs[0]), files)
            for one, files in zip(wanted, names, strict=True)
            if one.directory == folder
        )
