"""An accelerated graph, driven as programs drive the frontend's: what is launched, and where."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from runtime.test_tensors import Tensors, doubles  # noqa: E402
from support import device_tensors, fake_pygraph, overriding  # noqa: E402
from support import integrations as way  # noqa: E402
from support.cases import CASES, POISON, Case  # noqa: E402
from support.device_tensors import strided  # noqa: E402
from support.fake_pygraph import Graph, Handle, Tensor, uids_of  # noqa: E402
from support.producers import Array, OldProducer, Producer  # noqa: E402
from support.standin import Standin  # noqa: E402

import cudnn_bindgen  # noqa: E402
from cudnn_bindgen.runtime.errors import OperandError  # noqa: E402

Accelerate = Callable[..., Any]


@pytest.fixture
def accelerate(standin: Standin, monkeypatch: pytest.MonkeyPatch) -> Iterator[Accelerate]:
    """`accelerate` of graphs that no other test has."""
    monkeypatch.setitem(sys.modules, "cudnn", fake_pygraph.frontend())
    made: list[Any] = []

    def accelerate(graph: Graph, **options: Any) -> Any:
        made.append(cudnn_bindgen.accelerate(graph, **options))
        return made[-1]

    device_tensors.set_stream(0)
    device_tensors.set_device(0)
    yield accelerate
    device_tensors.set_stream(0)
    for one in made:
        one.module.close()


class Call:
    """A case's operands by uid, and what a call must leave."""

    def __init__(self, case: Case, seed: int = 0) -> None:
        self.tensors = Tensors(case, seed)
        self.expected = self.tensors.expected()
        self.by_uid: dict[int, Any] = {
            operand.uid: self.tensors.by_name[operand.name] for operand in case.operands
        }
        for scalar in case.binding.scalars:
            value = self.tensors.scalars[scalar.argument]
            self.by_uid[scalar.uid] = torch.full((1, 1, 1, 1), value, dtype=torch.float32)

    def check(self) -> None:
        self.tensors.check(self.expected)
        self.tensors.poison()

    def check_untouched(self) -> None:
        for name in self.tensors.outputs:
            assert (doubles(self.tensors.by_name[name]) == POISON).all()


def workspace(size: int = 8192) -> Any:
    return strided((size,), (1,), torch.uint8)


GRAPHS = {"thd": CASES["thd"], "norm": CASES["norm"], "gemm": way.GEMM}


@pytest.mark.parametrize("form", way.FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("check", [False, True], ids=["unchecked", "checked"])
@pytest.mark.parametrize("name", GRAPHS)
def test_forms_of_flashinfer(accelerate: Accelerate, name: str, check: bool, form: Any) -> None:
    graph = Graph(GRAPHS[name].plan)
    accelerated = accelerate(graph, check=check)
    handle = Handle()
    for seed in range(6):  # direct, then by a record
        call = Call(GRAPHS[name], 100 * seed)
        form(accelerated, call.by_uid, workspace(), handle)
        call.check()
    assert accelerated.module.launch_path() == "record"
    assert not graph.calls


@pytest.mark.parametrize("name", GRAPHS)
def test_keys_are_uids_tensors_or_names(accelerate: Accelerate, name: str) -> None:
    case = GRAPHS[name]
    accelerated = accelerate(Graph(case.plan))
    call = Call(case)
    for key in uids_of(call.by_uid):
        accelerated.execute({key(uid): one for uid, one in call.by_uid.items()})
        call.check()
    names = {argument.uid: argument.original for argument in case.binding.arguments}
    accelerated.execute({names[uid]: one for uid, one in call.by_uid.items()}, workspace())
    call.check()
    keys = [Tensor(uid) for uid in call.by_uid]
    accelerated.execute([*call.by_uid.values()], tensor_uids=keys)
    call.check()


def test_what_the_graph_does_not_bind_is_ignored(accelerate: Accelerate) -> None:
    accelerated = accelerate(Graph(CASES["thd"].plan))
    call = Call(CASES["thd"])
    accelerated.execute(call.by_uid | {None: object(), 4711: object(), "nothing": 1})
    call.check()
    accelerated.execute([*call.by_uid.values(), None], tensor_uids=[*call.by_uid, 4711])
    call.check()


def test_what_the_graph_holds_itself_need_not_be_passed(accelerate: Accelerate) -> None:
    call, other = Call(CASES["thd"]), Call(CASES["thd"], 7)
    bound = {uid: call.by_uid[uid] for uid in (1, 2)}
    accelerated = accelerate(Graph(CASES["thd"].plan, _data_bindings=bound))
    accelerated.execute({uid: one for uid, one in call.by_uid.items() if uid not in bound})
    call.check()
    accelerated.execute(other.by_uid)
    other.check()


@pytest.mark.parametrize("kind", [int, Producer, OldProducer, Array])
def test_other_ways_to_hold_memory(accelerate: Accelerate, kind: type) -> None:
    accelerated = accelerate(Graph(CASES["thd"].plan))
    call = Call(CASES["thd"])
    plain = {uid: one.as_subclass(torch.Tensor) for uid, one in call.by_uid.items()}
    wrap = torch.Tensor.data_ptr if kind is int else kind
    accelerated.execute({uid: wrap(one) for uid, one in plain.items()})
    call.check()


def test_a_type_that_the_exchange_api_does_not_read(accelerate: Accelerate) -> None:
    accelerated = accelerate(Graph(CASES["thd"].plan))
    call = Call(CASES["thd"])
    device_tensors.set_direct(False)
    try:
        accelerated.execute(call.by_uid)
    finally:
        device_tensors.set_direct(True)
    call.check()


def test_other_views_pass_unless_checks_are_asked_for(accelerate: Accelerate) -> None:
    graph = Graph(CASES["thd"].plan)
    call = Call(CASES["thd"])
    q = call.by_uid[1]
    flat = q.as_strided((q.numel(),), (1,)).view(torch.float16)
    accelerate(graph).execute(call.by_uid | {1: flat})
    call.check()
    with pytest.raises(OperandError, match=r"^q: expected BFLOAT16"):
        accelerate(graph, check=True).execute(call.by_uid | {1: flat})
    call.check_untouched()


def test_scalars_are_values_on_the_host(accelerate: Accelerate) -> None:
    numpy = pytest.importorskip("numpy")
    accelerated = accelerate(Graph(CASES["norm"].plan))
    call = Call(CASES["norm"])
    uid = CASES["norm"].binding.scalars[0].uid
    memory = ctypes.c_float(1.5)
    for value in (
        torch.tensor(1.5),
        torch.tensor([[1.5]], dtype=torch.float64),
        torch.tensor([1.5], dtype=torch.float16),
        numpy.float32(1.5),
        1.5,
        ctypes.addressof(memory),  # as the frontend has it
    ):
        accelerated.execute(call.by_uid | {uid: value})
        call.check()
    for wrong in (0, torch.ones(2), "1.5", strided((1,), (1,), torch.float32)):
        with pytest.raises(OperandError):
            accelerated.execute(call.by_uid | {uid: wrong})
        call.check_untouched()


# Streams


def last_stream(standin: Standin) -> int:
    return int(standin.log("cudnnSetStream")[-1].split()[-1], 16)


def test_the_stream_is_the_handles(accelerate: Accelerate, standin: Standin) -> None:
    streams = [standin.stream() for _ in range(3)]
    first, second, own = map(Handle, streams)
    accelerated = accelerate(Graph(CASES["thd"].plan, own))
    accelerated.module.set_launch_policy("direct")
    call = Call(CASES["thd"])
    device_tensors.set_stream(streams[0])  # the framework's own does not count
    for handle, stream in [(second, 1), (first, 0), (None, 2), (second, 1)]:
        accelerated.execute(call.by_uid, handle=handle)
        assert last_stream(standin) == streams[stream]
        call.check()
    first.stream = streams[2]
    accelerated.execute(call.by_uid, handle=first)
    assert last_stream(standin) == streams[2]
    for stream in streams:
        standin.destroy_stream(stream)


def test_a_graph_without_a_handle_runs_on_the_legacy_stream(
    accelerate: Accelerate, standin: Standin
) -> None:
    accelerated = accelerate(Graph(CASES["thd"].plan))
    accelerated.module.set_launch_policy("direct")
    stream = standin.stream()
    call = Call(CASES["thd"])
    accelerated.execute(call.by_uid, handle=Handle(stream))
    accelerated.execute(call.by_uid)
    assert last_stream(standin) == 0
    call.check()
    chosen = accelerate(Graph(CASES["thd"].plan), handle=Handle(stream))
    chosen.execute(call.by_uid)
    assert last_stream(standin) == stream
    standin.destroy_stream(stream)


def test_the_frontend_executes_where_only_it_knows_the_stream(accelerate: Accelerate) -> None:
    graph = Graph(CASES["thd"].plan)
    call, handle = Call(CASES["thd"]), Handle(None)
    accelerate(graph).execute(call.by_uid, 5, handle, tensor_uids=[1])
    assert graph.calls == [((call.by_uid, 5, handle), {"tensor_uids": [1]})]
    older = Graph(CASES["thd"].plan)
    del older._handle
    accelerate(older).execute(call.by_uid, 5)
    assert older.calls == [((call.by_uid, 5, None), {})]
    accelerate(older, handle=Handle()).execute(call.by_uid)
    assert len(older.calls) == 1
    call.check()


# Overrides


def override_call(
    arrays: overriding.Arrays, accelerated: Any, expected: dict[int, Any], **options: Any
) -> None:
    arrays.move()
    tensors = arrays.addresses | {overriding.ALPHA: torch.tensor([arrays.alpha])}
    way.overridden(accelerated, tensors, arrays.workspace, Handle(), expected)
    arrays.check(expected)


@pytest.fixture
def product_graph(standin: Standin) -> Graph:
    standin.set_version(overriding.VERSION)
    return Graph(overriding.product_plan())


def test_overrides(
    accelerate: Accelerate, product_graph: Graph, arrays: Callable[..., overriding.Arrays]
) -> None:
    accelerated, buffers = accelerate(product_graph), arrays()
    for _ in range(3):
        for m in (overriding.ROWS, 5, 9, 5):
            override_call(buffers, accelerated, overriding.with_m(m))
        override_call(buffers, accelerated, {})
    assert not product_graph.calls
    assert accelerated.module.launch_stats()["evicted"] == 0


def test_overrides_are_known_again(
    accelerate: Accelerate,
    product_graph: Graph,
    arrays: Callable[..., overriding.Arrays],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accelerated, buffers = accelerate(product_graph), arrays()
    made = 0

    def counted(self: Any) -> None:
        nonlocal made
        made += 1

    monkeypatch.setattr(accelerated.module.Overrides, "__init__", counted)
    for m in (3, 4, 3, 4, 3):
        override_call(buffers, accelerated, overriding.with_m(m))
    assert made == 2
    # The same numbers, cut in another way, are other overrides.
    a, c = overriding.A, overriding.C
    given = buffers.addresses | {overriding.ALPHA: 0.5}
    with pytest.raises(OperandError, match="expected 3 dims"):
        accelerated.execute(
            given, override_uids=[a], override_shapes=[[1]], override_strides=[[3, 4, 12, 4, 1]]
        )
    assert made == 3
    with pytest.raises(OperandError, match="expected ints of 64 bits"):
        accelerated.execute(
            given, override_uids=[a], override_shapes=[[1, 3, 4]], override_strides=[[12, 4, None]]
        )
    override_call(buffers, accelerated, overriding.with_m(4))
    with pytest.raises(OperandError, match="uids"):
        accelerated.execute(
            given,
            override_uids=[a, c],
            override_shapes=[[1, 3, 4]],
            override_strides=[[12, 4, 1]],
        )


def test_overrides_of_a_graph_that_takes_none_are_the_frontends_affair(
    accelerate: Accelerate,
) -> None:
    graph = Graph(CASES["thd"].plan)
    accelerated, call = accelerate(graph), Call(CASES["thd"])
    lists = {"override_uids": [1], "override_shapes": [[1]], "override_strides": [[1]]}
    accelerated.execute(call.by_uid, **lists)
    assert graph.calls == [((call.by_uid, None, None), lists)]
    accelerated.execute(call.by_uid, override_uids=[], override_shapes=[], override_strides=[])
    call.check()


# Errors


def test_what_is_missing_is_named(accelerate: Accelerate) -> None:
    accelerated, call = accelerate(Graph(CASES["norm"].plan)), Call(CASES["norm"])
    for argument in CASES["norm"].binding.arguments:
        for given in (
            {uid: one for uid, one in call.by_uid.items() if uid != argument.uid},
            call.by_uid | {argument.uid: None},
        ):
            with pytest.raises(OperandError, match=rf"\(uid {argument.uid}\), got none") as caught:
                accelerated.execute(given)
            assert caught.value.argument == argument.argument
    call.check_untouched()
    accelerated.execute(call.by_uid)
    call.check()


def test_wrong_uids_of_a_list(accelerate: Accelerate) -> None:
    accelerated, call = accelerate(Graph(CASES["thd"].plan)), Call(CASES["thd"])
    tensors, uids = [*call.by_uid.values()], [*call.by_uid]
    with pytest.raises(OperandError, match="expected 12 uids"):
        accelerated.execute(tensors, tensor_uids=uids[1:])
    with pytest.raises(OperandError, match="distinct uids, got 1 twice"):
        accelerated.execute([tensors[0], *tensors], tensor_uids=[1, *uids])
    with pytest.raises(OperandError, match=r"^q_ptr: "):
        accelerated.execute([object(), *tensors[1:]], tensor_uids=uids)
    with pytest.raises(OperandError, match=r"^workspace"):
        accelerated.execute(call.by_uid, workspace=object())
    call.check_untouched()


def test_tensors_are_not_kept(accelerate: Accelerate) -> None:
    accelerated, call = accelerate(Graph(CASES["norm"].plan)), Call(CASES["norm"])
    held = [*call.by_uid.values()]
    before = [sys.getrefcount(one) for one in held]
    for _ in range(50):
        accelerated.execute(call.by_uid)
        with pytest.raises(OperandError):
            accelerated.execute(call.by_uid | {1: None, 2: None, 3: None})
    assert [sys.getrefcount(one) for one in held] == before


# The rest of the graph


def test_everything_else_is_the_graphs(accelerate: Accelerate) -> None:
    graph = Graph(CASES["thd"].plan)
    accelerated = accelerate(graph)
    assert accelerated.graph is graph
    assert accelerated.get_workspace_size(1, 2) == 1236
    accelerated.execute_plan_at_index({}, None, 3)
    assert graph.calls == [(({}, None, 3, None), {})]
    assert accelerated.serialize() == list(graph.plan)
    assert repr(accelerated) == repr(graph)
    assert cudnn_bindgen.accelerate(accelerated) is accelerated
    # FlashInfer would take this way around `execute`.
    assert getattr(accelerated, "_prepare_backend_execution", None) is None


def test_the_plan_that_the_graph_executes(accelerate: Accelerate) -> None:
    small, large = CASES["thd"], CASES["thd_large"]  # they differ in workspace alone
    plans = (large.plan, small.plan, large.plan)
    graph = Graph(large.plan, plans=plans, selected=1)  # the last one was built last
    accelerated = accelerate(graph)
    assert accelerated.plan_index == graph._plan_index == 1
    assert accelerated.module.workspace_size() == 4096
    call, handle = Call(small), Handle()
    accelerated.execute(call.by_uid)
    call.check()
    # FlashInfer's products name the plan of the list.
    accelerated.execute_plan_at_index(call.by_uid, workspace(), 1, handle=handle)
    call.check()
    uids, buffers = tuple(call.by_uid), [*call.by_uid.values()]
    accelerated.execute_plan_at_index(buffers, None, 1, handle, tensor_uids=uids)
    call.check()
    assert not graph.calls
    accelerated.execute_plan_at_index(buffers, 5, 0, handle, [1], [[1]], [[1]], tensor_uids=uids)
    lists = {"override_uids": [1], "override_shapes": [[1]], "override_strides": [[1]]}
    assert graph.calls == [((buffers, 5, 0, handle), lists | {"tensor_uids": uids})]


def test_graphs_of_one_plan_share_its_binding(accelerate: Accelerate) -> None:
    case = CASES["thd"]
    first, second = accelerate(Graph(case.plan)), accelerate(Graph(case.plan))
    assert first.module is second.module


def test_a_graph_whose_binding_was_closed_gets_another(accelerate: Accelerate) -> None:
    case = CASES["thd"]
    first = accelerate(Graph(case.plan))
    first.module.close()
    again, call = accelerate(Graph(case.plan)), Call(case)
    again.execute(call.by_uid)
    call.check()


def test_a_plan_is_let_go_with_the_last_graph_that_has_it(
    standin: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", fake_pygraph.frontend())
    first, second = (cudnn_bindgen.accelerate(Graph(CASES["thd"].plan)) for _ in range(2))
    assert standin.live("plan") == 1
    del first
    gc.collect()
    assert standin.live("plan") == 1
    del second
    gc.collect()
    assert standin.live("plan") == 0


def test_plans_of_one_graph_have_a_binding_each(accelerate: Accelerate, standin: Standin) -> None:
    small, large = CASES["thd"], CASES["thd_large"]  # they differ in workspace alone
    first, second = accelerate(Graph(small.plan)), accelerate(Graph(large.plan))
    assert first.module is not second.module
    assert first.module.workspace_size() < second.module.workspace_size()
    for accelerated, case in ((first, small), (second, large), (first, small)):
        call = Call(case)
        accelerated.execute(call.by_uid)
        call.check()


def test_importing_loads_nothing_else() -> None:
    code = (
        "import sys, cudnn_bindgen\n"
        "assert not [n for n in sys.modules if n.startswith('cudnn_bindgen.')]\n"
        "cudnn_bindgen.accelerate\n"
        "assert not {'cudnn', 'torch', 'Cython', 'setuptools'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'decelerate'"):
        cudnn_bindgen.decelerate  # noqa: B018
