"""Rollouts: the responses of a policy with their rewards, and what a reward pays for in them."""
