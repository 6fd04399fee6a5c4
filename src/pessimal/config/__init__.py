"""Typed, validated configuration; together with `verbs` and `cli`, the only place that knows Hydra
exists."""
