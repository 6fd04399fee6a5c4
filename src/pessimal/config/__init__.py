"""Typed, validated configuration; together with `verbs`, the only place that knows Hydra exists."""
