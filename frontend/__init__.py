"""All that speaks to NVIDIA's live frontend: makes plans, records programs, accelerates graphs."""
