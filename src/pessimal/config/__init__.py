"""Typed, validated configuration; together with `tasks`, the only place that knows Hydra exists."""
