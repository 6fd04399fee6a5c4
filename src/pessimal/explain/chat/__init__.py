"""Clients of language models that answer in JSON: an endpoint or a model on this machine, with every answer kept.

Knows messages, schemas and answers. What is asked about responses, and what is made of the answers, is decided by the
perturber and the judge; the reward models are unknown here.
"""
