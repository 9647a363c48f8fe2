"""What `show` says of a refusal: which dialect it saw, what is wrong, where, and what to do."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from support.documents import add_graph, document, node, plan_document, tensor, to_json, to_ubjson
from support.documents_v1 import old_add

from cudnn_bindgen.cli import main

AGAIN = "dump the graph again with nvidia-cudnn-frontend 1.27 or newer"


def run(*arguments: str, stdin: bytes) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


EXPLAINED: dict[str, tuple[bytes, list[str]]] = {
    "structure v2": (
        to_json(document([node("RESHAPE", {"X": 1}, {"Y": 2})], [tensor(1), tensor(-1)])),
        [
            "read as  structure v2",
            "at       $.tensors[1].uid",
            "problem  expected an assigned uid, got -1",
            "remedy   call graph.validate() before dumping the graph",
        ],
    ),
    "structure v1": (
        to_json(old_add() | {"nodes": [node("RESHAPE", {"X": "lost"}, {"Y": "y"})]}),
        [
            "read as  structure v1",
            "at       $.nodes[0].inputs.X",
            "problem  expected the key of a tensor, got 'lost': the dump lost a tensor",
            f"remedy   {AGAIN}",
        ],
    ),
    "plan": (
        to_ubjson(plan_document(add_graph(), variant_pack_uids=[1, 2, 3, 9])),
        [
            "read as  plan",
            "at       $.variant_pack_uids",
            "problem  expected uids of tensors, constants or workspace parts, got 9",
            "remedy   plan and structure are of different graphs: write the file again with "
            "serialize()",
        ],
    ),
    "plan as text": (
        b"[123, 105, 300]",
        [
            "read as  plan as text",
            "at       $[2]",
            "problem  expected a byte, 0 to 255, got another number",
            "remedy   print(list(graph.serialize())) gives such a list",
        ],
    ),
    "log": (
        b"INFO\n" + to_json(add_graph()).replace(b'"uid": 3', b'"uid": -1'),
        [
            "read as  log",
            "line     2",
            "at       $.tensors[2].uid",
            "problem  expected an assigned uid, got -1",
            "remedy   call graph.validate() before dumping the graph",
        ],
    ),
    "Python plan": (
        b"CUDNN_FE_PYPLAN\0",
        [
            "read as  Python plan",
            "problem  expected a whole Python plan, got one that is cut off",
            "remedy   write graph.serialize() again",
        ],
    ),
    "python IR": (
        b'{\n  "context": {},\n  "nodes": [],\n  "tensors": {}\n}',
        [
            "read as  python IR",
            "at       $.json_version",
            'problem  expected "2.0" or "1.0", got a graph that was printed before it was lowered',
            "remedy   `cudnn-bindgen plan` has NVIDIA's frontend lower it, and asks for what the "
            "text leaves out; or print it after graph.validate(), graph.build_operation_graph() "
            "and graph.create_execution_plans([...]), or write graph.serialize() of a built graph",
        ],
    ),
    "unknown": (
        b"hello",
        [
            "read as  unknown",
            "problem  expected a graph file, got b'hello'...",
            "remedy   a graph file is written by repr(graph) or graph.serialize()",
        ],
    ),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_show_explains_a_refusal(name: str) -> None:
    data, lines = EXPLAINED[name]
    done = run("show", "-", stdin=data)
    assert (done.exit_code, done.stdout) == (2, "")
    first, *rest = done.stderr.splitlines()
    assert first.startswith("error: stdin: ")
    assert rest == [f"  {line}" for line in lines]
    explained = json.loads(run("show", "-", "--json", stdin=data).stdout)["refused"]
    assert explained["dialect"] == name
    assert explained["file"] == "stdin"
    said = {line[:9].strip(): line[9:] for line in lines}
    assert explained["problem"] == said["problem"]
    assert explained["remedy"] == said["remedy"]
    assert explained["path"] == said.get("at")
    assert explained["line"] == (int(said["line"]) if "line" in said else None)


def test_show_names_all_places_up_to_some() -> None:
    shapeless = [tensor(uid, dim=[], stride=[]) for uid in range(1, 31)]
    data = to_json(document([node("RESHAPE", {"X": 1}, {"Y": 2})], shapeless))
    lines = run("show", "-", stdin=data).stderr.splitlines()
    assert lines[2] == "  at       $.tensors[0].dim"
    assert lines[4] == "  also at  $.tensors[1].dim"
    assert sum(line.startswith("  also at") for line in lines) == 20
    assert lines[-2:] == [
        "           and at 9 more",
        "  remedy   call graph.validate() first, or set dim and stride of this tensor",
    ]
    explained = json.loads(run("show", "-", "--json", stdin=data).stdout)["refused"]
    assert explained["also"] == [f"$.tensors[{index}].dim" for index in range(1, 30)]
