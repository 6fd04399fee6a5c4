"""Searching responses of several tokens for the best and the worst: pieces that see an objective, never a model."""
