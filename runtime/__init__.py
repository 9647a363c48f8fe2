"""What generated modules run on: handles, plans, workspace, errors. Knows no JSON, no templates."""
