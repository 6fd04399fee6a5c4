"""Tuning the search's options by Optuna: a study of many trials that any number of workers share,
and its results.

A trial is one choice of options; its value is the median over prompts and seeds of what the search
reaches within a fixed budget. Sees a model through `study.Searchable` alone; Hydra's side of it is
`hydra_plugins/pessimal_optuna` and `verbs/search_tuning`.
"""
