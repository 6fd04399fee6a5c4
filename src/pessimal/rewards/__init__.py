"""Rewards: kinds, a file each; loading, chat frames, heads."""
