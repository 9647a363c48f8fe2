"""Launch records on the GPU: the same bits as the direct path, whatever addresses come."""

import random

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (tests/gpu/conftest.py puts benchmarks/ on the path)

pytestmark = pytest.mark.gpu

CALLS = 10_000
SETS, COPIES, STREAMS = 4, 3, 4


def placed(source, chance, alignment=16):
    """Return a copy of a storage at a random offset that keeps the alignment."""
    offset = alignment * chance.randrange(64)
    room = torch.empty(source.numel() + 64 * alignment, dtype=torch.uint8, device="cuda")
    return room[offset : offset + source.numel()].copy_(source)


class Pool:
    """Input sets with the direct path's outputs for each, and copies of all at many addresses."""

    def __init__(self, case, chance):
        self.module, self.operands = case.module, case.module.OPERANDS
        self.inputs = [o for o in self.operands if o.role == "input"]
        self.outputs = [o for o in self.operands if o.role == "output"]
        sets = [case.fresh() for _ in range(SETS)]
        self.scalars = {o.uid: sets[0][o.uid].item() for o in self.operands if o.role == "scalar"}
        self.module.set_launch_policy("direct")
        self.expected = []
        for tensors in sets:
            addresses = {o.uid: tensors[o.uid].data_ptr() for o in self.inputs + self.outputs}
            self.module.execute(*self.arguments(addresses))
            torch.cuda.synchronize()
            self.expected.append({o.uid: graphs.storage(tensors[o.uid]) for o in self.outputs})
        self.copies = [
            {
                o.uid: [placed(graphs.storage(tensors[o.uid]), chance) for _ in range(COPIES)]
                for o in self.inputs
            }
            for tensors in sets
        ]
        # Outputs and workspaces are written: each stream has its own.
        self.targets = [
            {
                o.uid: [placed(self.expected[0][o.uid], chance) for _ in range(COPIES)]
                for o in self.outputs
            }
            for _ in range(STREAMS)
        ]
        scratch = torch.zeros(
            max(1, self.module.workspace_size()), dtype=torch.uint8, device="cuda"
        )
        self.workspaces = [
            [placed(scratch, chance, 256) for _ in range(COPIES)] for _ in range(STREAMS)
        ]
        torch.cuda.synchronize()

    def arguments(self, addresses):
        values = {**addresses, **self.scalars}
        return [values[operand.uid] for operand in self.operands]


def test_random_calls_have_the_direct_paths_bits(case):
    chance = random.Random(case.name)
    pool = Pool(case, chance)
    module = pool.module
    module.set_launch_policy("auto")
    before = module.launch_stats()
    streams = [torch.cuda.Stream(priority=-(index % 2)) for index in range(STREAMS)]
    wrong = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in streams]
    for _ in range(CALLS):
        number, chosen = chance.randrange(STREAMS), chance.randrange(SETS)
        stream = streams[number]
        inputs = {o.uid: chance.choice(pool.copies[chosen][o.uid]).data_ptr() for o in pool.inputs}
        targets = {o.uid: chance.choice(pool.targets[number][o.uid]) for o in pool.outputs}
        workspace = chance.choice(pool.workspaces[number]).data_ptr()
        with torch.cuda.stream(stream):
            for target in targets.values():
                target.fill_(0xFF)
            addresses = inputs | {uid: target.data_ptr() for uid, target in targets.items()}
            module.execute(
                *pool.arguments(addresses),
                workspace_ptr=workspace if chance.random() < 0.9 else 0,
                stream=stream.cuda_stream,
            )
            for uid, target in targets.items():
                wrong[number] += (target != pool.expected[chosen][uid]).any()
    torch.cuda.synchronize()
    assert [int(count) for count in wrong] == [0] * STREAMS
    # Nothing was written where an input lies.
    for copies in pool.copies:
        for same in copies.values():
            assert all(torch.equal(same[0], copy) for copy in same[1:])
    after = module.launch_stats()
    assert after["refused"] == 0, after["reason"]
    recorded = after["record_patched"] + after["record_unchanged"]
    assert recorded - before["record_patched"] - before["record_unchanged"] > 0.99 * CALLS
    assert module.launch_path() == "record"


def test_close_while_records_are_in_flight(case):
    stream = torch.cuda.Stream()
    rounds = [case.fresh() for _ in range(8)]
    expected = [case.expected(tensors) for tensors in rounds]
    case.module.set_launch_policy("record")
    for tensors in rounds:
        case.module.execute(*case.arguments(tensors), stream=stream.cuda_stream)
    for tensors in rounds:
        case.poison(tensors)
    torch.cuda.synchronize()
    try:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # keeps the launches queued while close() runs
        for tensors in rounds:
            case.module.execute(*case.arguments(tensors), stream=stream.cuda_stream)
        case.module.close()
        torch.cuda.synchronize()
        for tensors, bits in zip(rounds, expected, strict=True):
            case.assert_same(tensors, bits)
    finally:
        case.module.load_plan()
        case.module.set_launch_policy("auto")
    case.verify()


def test_what_a_record_patches(case):
    nodes = case.module.launch_nodes()
    assert nodes
    patched = {patch["operand"] for node in nodes for patch in node["patches"]}
    addresses = {o.argument for o in case.module.OPERANDS if o.role != "scalar"}
    assert addresses <= patched
    assert patched <= addresses | {"workspace_ptr"}
    for node in nodes:
        assert node["kind"] in ("kernel", "memset", "memcpy", "empty")
        assert node["kind"] != "kernel" or all(size > 0 for size in node["grid"])
