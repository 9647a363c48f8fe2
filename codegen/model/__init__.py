"""What a graph is, in cuDNN's words; the other stages see it, it sees none."""
