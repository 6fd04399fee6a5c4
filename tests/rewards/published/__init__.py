"""Tiny random checkpoints of every published head, made by us."""
