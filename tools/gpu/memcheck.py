"""A short run of every shipped plan, direct and through records, for compute-sanitizer.

python tools/gpu/memcheck.py DIRECTORY     # of modules built from tests/data/plans
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import graphs
import torch


def main(directory: Path) -> None:
    """Call each module ten times at ten places; compare the outputs with the first call's."""
    generator = torch.Generator("cuda").manual_seed(0)
    stream = torch.cuda.Stream()
    for path in sorted(directory.glob("*.pyi")):
        module = graphs.import_module(path.stem, directory)
        first = graphs.make_operands(module.OPERANDS, generator, "cuda")
        outputs = [operand.uid for operand in module.OPERANDS if operand.role == "output"]
        expected = None
        for _ in range(10):
            tensors = graphs.clone(first)
            torch.cuda.synchronize()
            module.execute(*graphs.arguments(module.OPERANDS, tensors), stream=stream.cuda_stream)
            torch.cuda.synchronize()
            found = [graphs.storage(tensors[uid]) for uid in outputs]
            expected = expected or found
            assert all(torch.equal(*pair) for pair in zip(expected, found, strict=True)), path.stem
        print(path.stem, module.launch_path(), module.launch_stats())
        assert module.launch_path() == "record"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
