"""What a running program does with the frontend → graph files, and how hot each graph is."""
