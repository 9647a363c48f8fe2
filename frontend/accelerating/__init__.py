"""A live graph of NVIDIA's frontend → an object that executes it faster. See docs/accelerate.md."""
