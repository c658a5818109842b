"""Judging samples."""
