"""Training of masked language models: objectives, data, loop."""
