"""The front door: from what is typed to a checked configuration, and from there to a verb. Knows
Hydra."""
