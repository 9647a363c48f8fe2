"""What a running program does with the frontend → graph files, and how hot each graph is."""

USAGE = "usage"
"""Where the records of processes lie, apart from graphs, so that ``*.json`` names graphs alone."""
