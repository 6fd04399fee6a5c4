"""Contrastive explanations of single preferences: which change of a response along which attribute
flips one.

After Jiang et al. (2025), "Interpreting Language Reward Models via Contrastive Explanations",
re-implemented from public descriptions. Knows texts, attributes and rewards given as numbers. Does
not know models, registries or Hydra.
"""
