"""What a run looks like: plots and a self-contained HTML page."""
