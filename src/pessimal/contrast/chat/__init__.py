"""Asking a language model for JSON: over the wire or on this machine, with every answer kept.

Knows messages, schemas and answers. What is asked about responses, and what is made of the answers, is decided by the
perturber and the judge; the reward models are unknown here.
"""
