"""A reward model: what to load, its chat frame, its backbone and its head."""
