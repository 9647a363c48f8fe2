"""Structure of a graph → a plan, on a GPU, through the builders of NVIDIA's frontend."""
