"""Hydra finds the plugin by looking through this folder. `hydra_plugins` itself is shared by all
plugins: it has no __init__."""
