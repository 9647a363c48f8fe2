"""`emit` and `build` with --chain: a chain's file → the files of one module."""

from __future__ import annotations

from pathlib import Path

from cudnn_bindgen.codegen.bind.chain import make_chain
from cudnn_bindgen.codegen.bind.chain_ports import LinkGraph
from cudnn_bindgen.codegen.bind.naming import check_module_name
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.read.chain import link_files, read_chain
from cudnn_bindgen.codegen.read.source import is_stdin
from cudnn_bindgen.codegen.render.module import render_chain
from cudnn_bindgen.commands.graphs import Planned, read_bound, source_name
from cudnn_bindgen.commands.options import ModuleOptions
from cudnn_bindgen.commands.outcome import Made


def check_chain_options(options: ModuleOptions, graphs: tuple[Path, ...]) -> None:
    """Refuse options that are for one graph.

    Raises
    ------
    EmitError
        One of them is given with --chain.
    """
    if not options.is_chain:
        return
    others = {
        "--family": options.family.name,
        "--index": options.reading.index,
        "--symbol": options.overriding.symbols or None,
        "--unbounded": options.overriding.is_unbounded or None,
        "--torch": options.torch.namespace,
    }
    for option, value in others.items():
        if value is not None:
            raise EmitError(f"--chain: expected no {option}, got both")
    if any(map(is_stdin, graphs)):
        raise EmitError("--chain: expected a file, got -")


def render_links(
    path: Path, module: str, options: ModuleOptions, planned: Planned
) -> tuple[dict[str, str], list[Made]]:
    """Read a chain and its graphs, and render its module."""
    check_module_name(module)
    said = read_chain(path)
    bound = {file: read_bound(file, options, planned)[1] for file in link_files(path, said)}
    try:
        chain = make_chain(
            said,
            [
                LinkGraph(link.name, source_name(file), bound[file])
                for link, file in zip(said.link, link_files(path, said), strict=True)
            ],
        )
    except EmitError as error:
        raise EmitError(f"{path}: {error}") from None
    plans = {file: binding.plans for file, binding in bound.items()}
    return render_chain(chain, module, source_name(path), options.said()), [Made(module, plans)]
