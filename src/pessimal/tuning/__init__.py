"""Tuning the search's options by Optuna: a study of many trials that any number of workers share,
and its results.

A trial is one choice of options; its value is the median over prompts and seeds of what the search
reaches within a fixed budget. Sees a context (`trial.TrialContext`), never a model; Hydra's side of
it is `hydra_plugins/pessimal_optuna`.
"""
