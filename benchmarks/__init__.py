"""What is measured, beside what. `python -m benchmarks [NAME ...]`; each topic is a file that registers itself."""
